"""The normative statements of MQTT 5.0 (appendix B), in brief, by what proves them.

A statement is proved by a test of the codec, named `module::function`; or it is the duty of

    BROKER   the sessions, the engine or the network: proved by tests of the broker, whose docstrings name it as
             [MQTT-x.y.z-n], or [MQTT-x.y.z-n] to [MQTT-x.y.z-m]
    CLIENT   the client: there is nothing that a server could do about it

`PROVED` is checked for completeness, and the tests for existence.
"""

from __future__ import annotations

from typing import Final

BROKER: Final = "broker"
CLIENT: Final = "client"

PROVED: Final[dict[str, dict[str, str]]] = {
    "test_rules::test_refused_once_connected": {
        "MQTT-1.5.4-1": "Text is well-formed UTF-8 without surrogates.",
        "MQTT-1.5.4-2": "Text has no U+0000.",
        "MQTT-1.5.5-1": "A variable byte integer has no needless bytes.",
        "MQTT-1.5.7-1": "Both texts of a pair are text.",
        "MQTT-2.2.1-3": "A client's new SUBSCRIBE, UNSUBSCRIBE, PUBLISH has an unused packet identifier other than 0.",
        "MQTT-3.1.0-2": "A second CONNECT is a Protocol Error and closes the connection.",
        "MQTT-3.3.1-2": "QoS 0 has no DUP.",
        "MQTT-3.3.1-4": "There is no QoS 3.",
        "MQTT-3.3.2-1": "The topic name is first in PUBLISH, and text.",
        "MQTT-3.3.2-2": "The topic name has no wildcards.",
        "MQTT-3.3.2-8": "No topic alias 0.",
        "MQTT-3.3.2-9": "No topic alias above the server's maximum.",
        "MQTT-3.3.2-13": "The response topic is text.",
        "MQTT-3.3.2-14": "The response topic has no wildcards.",
        "MQTT-3.3.2-19": "The content type is text.",
        "MQTT-3.3.4-6": "A client's PUBLISH has no subscription identifier.",
        "MQTT-3.6.1-1": "PUBREL has the flags 0010.",
        "MQTT-3.8.1-1": "SUBSCRIBE has the flags 0010.",
        "MQTT-3.8.3-1": "Topic filters are text.",
        "MQTT-3.8.3-2": "SUBSCRIBE has at least one.",
        "MQTT-3.8.3-4": "No Local on a shared subscription is a Protocol Error.",
        "MQTT-3.8.3-5": "Reserved subscription options are malformed.",
        "MQTT-3.10.1-1": "UNSUBSCRIBE has the flags 0010.",
        "MQTT-3.10.3-1": "Topic filters are text.",
        "MQTT-3.10.3-2": "UNSUBSCRIBE has at least one.",
        "MQTT-3.14.1-1": "DISCONNECT has no flags, or it is malformed.",
        "MQTT-3.14.2-2": "A server's DISCONNECT has no session expiry interval.",
        "MQTT-4.7.0-1": "Topic names have no wildcards.",
        "MQTT-4.7.3-1": "Topic names and topic filters have at least one character.",
        "MQTT-4.7.3-2": "They have no U+0000.",
        "MQTT-4.8.2-2": "The share name has no / + #, and a topic filter follows it.",
        "MQTT-4.12.0-7": "Nor does the client send AUTH.",
        "MQTT-4.13.1-1": "A server closes after a Malformed Packet or Protocol Error.",
    },
    "test_rules::test_a_byte_order_mark_is_a_character": {
        "MQTT-1.5.4-3": "A byte order mark is the character U+FEFF and stays.",
    },
    "test_rules::test_the_flags_of_every_packet": {
        "MQTT-2.1.3-1": "Reserved flags have their value.",
    },
    "test_packets::test_publish": {
        "MQTT-2.2.1-2": "PUBLISH of QoS 0 has no packet identifier.",
        "MQTT-4.3.2-2": "QoS 1: sent with it, and without DUP.",
        "MQTT-4.3.3-2": "QoS 2: sent with it, and without DUP.",
    },
    "test_inflight::test_packet_ids_go_round": {
        "MQTT-2.2.1-4": "So has a server's new PUBLISH.",
    },
    "test_properties::test_no_properties": {
        "MQTT-2.2.2-1": "No properties are a property length of 0.",
    },
    "test_rules::test_strangers_get_no_answer": {
        "MQTT-3.1.0-1": "A client's first packet is CONNECT.",
        "MQTT-3.1.2-1": "The protocol name is MQTT; others may get CONNACK 0x84, and are closed.",
    },
    "test_sending::test_mistakes_in_a_connect": {
        "MQTT-3.1.2-2": "Other versions may get CONNACK 0x84, and are closed.",
    },
    "test_rules::test_refused_as_first_packet": {
        "MQTT-3.1.2-3": "The reserved flag of CONNECT is 0.",
        "MQTT-3.1.2-9": "With the will flag, will properties, topic and payload are there.",
        "MQTT-3.1.2-11": "Without the will flag, the will's QoS is 0.",
        "MQTT-3.1.2-12": "The will's QoS is 0, 1 or 2.",
        "MQTT-3.1.2-13": "Without the will flag, Will Retain is 0.",
        "MQTT-3.1.2-16": "Without its flag there is no user name.",
        "MQTT-3.1.2-17": "With its flag there is a user name.",
        "MQTT-3.1.2-18": "Without its flag there is no password.",
        "MQTT-3.1.2-19": "With its flag there is a password.",
        "MQTT-3.1.3-3": "The client identifier is there, first.",
        "MQTT-3.1.3-4": "The client identifier is text.",
        "MQTT-3.1.3-11": "The will topic is text.",
        "MQTT-3.1.3-12": "The user name is text.",
        "MQTT-3.1.4-1": "A CONNECT that does not conform closes the connection.",
    },
    "test_sending::test_a_packet_that_cannot_be_shortened": {
        "MQTT-3.1.2-24": "A server sends no packet above the client's Maximum Packet Size.",
    },
    "test_sending::test_messages_that_are_too_large": {
        "MQTT-3.1.2-25": "A message that is too large to send counts as sent.",
    },
    "test_aliases::test_aliases_are_used_as_far_as_the_client_takes_them": {
        "MQTT-3.1.2-26": "A server sends no topic alias above the client's maximum.",
        "MQTT-3.3.2-11": "No topic alias above the client's maximum.",
    },
    "test_aliases::test_no_aliases_where_none_are_taken": {
        "MQTT-3.1.2-27": "Without a maximum it sends none.",
    },
    "test_sending::test_problem_information": {
        "MQTT-3.1.2-29": "No reason strings and user properties not asked for, but in PUBLISH, CONNACK and DISCONNECT.",
    },
    "test_rules::test_nothing_but_auth_and_disconnect_while_authenticating": {
        "MQTT-3.1.2-30": "With an authentication method, only AUTH and DISCONNECT before CONNACK.",
    },
    "test_packets::test_connect": {
        "MQTT-3.1.3-1": "The fields of CONNECT's payload have their order.",
    },
    "test_limits::test_client_ids_that_a_server_must_allow": {
        "MQTT-3.1.3-5": "1 to 23 bytes of digits and letters are allowed.",
    },
    "test_limits::test_client_id_bytes": {
        "MQTT-3.1.3-8": "A refused client identifier may get CONNACK 0x85, and is closed.",
    },
    "test_properties::test_round_trip": {
        "MQTT-3.1.3-10": "The user properties of a will keep their order.",
        "MQTT-3.3.2-18": "They keep their order.",
    },
    "test_state::test_work_of_a_client_that_does_not_wait": {
        "MQTT-3.1.4-6": "After a refusal nothing but AUTH is processed.",
    },
    "test_state::test_everything_that_can_be_said_in_every_state": {
        "MQTT-3.2.0-1": "CONNACK 0x00 comes before everything from the server but AUTH.",
        "MQTT-3.2.0-2": "There is one CONNACK.",
        "MQTT-3.14.0-1": "A server sends DISCONNECT only after CONNACK.",
        "MQTT-4.12.0-2": "The server's AUTH has 0x18.",
        "MQTT-4.12.0-4": "A server may refuse at any time, and closes.",
    },
    "test_rules::test_packets_that_a_server_must_not_answer": {
        "MQTT-3.2.2-1": "The reserved acknowledge flags are 0.",
        "MQTT-3.2.2-6": "A refusal has Session Present 0.",
        "MQTT-4.12.0-6": "Without a method in CONNECT the server sends none and no AUTH.",
    },
    "test_sending::test_refusals_and_earlier_versions_announce_nothing": {
        "MQTT-3.2.2-7": "After a refusal the server closes.",
    },
    "test_codes::test_every_code": {
        "MQTT-3.2.2-8": "CONNACK has one of its reason codes.",
        "MQTT-3.4.2-1": "PUBACK has one of its reason codes.",
        "MQTT-3.5.2-1": "PUBREC has one of its reason codes.",
        "MQTT-3.6.2-1": "PUBREL has one of its reason codes.",
        "MQTT-3.7.2-1": "PUBCOMP has one of its reason codes.",
        "MQTT-3.9.3-2": "SUBACK has its reason codes.",
        "MQTT-3.11.3-2": "UNSUBACK has its reason codes.",
        "MQTT-3.14.2-1": "DISCONNECT has one of its reason codes.",
    },
    "test_limits::test_packet_bytes": {
        "MQTT-3.2.2-15": "A client sends no packet above the server's Maximum Packet Size.",
    },
    "test_limits::test_topic_aliases": {
        "MQTT-3.2.2-17": "A client sends no topic alias above the server's maximum.",
    },
    "test_runs::test_no_aliases_at_all": {
        "MQTT-3.2.2-18": "Without a maximum it sends none.",
    },
    "test_sending::test_a_connack_that_is_too_large": {
        "MQTT-3.2.2-19": "No reason string that makes CONNACK too large.",
        "MQTT-3.2.2-20": "No user properties that make CONNACK too large.",
        "MQTT-3.15.2-2": "No reason string that makes AUTH too large.",
        "MQTT-3.15.2-3": "No user properties that make it too large.",
    },
    "test_inflight::test_sending_again": {
        "MQTT-3.3.1-1": "A PUBLISH that is sent again has DUP.",
        "MQTT-4.3.3-6": "QoS 2: after PUBREL the PUBLISH is not sent again.",
        "MQTT-4.4.0-1": "After a reconnect, and only then, what is unacknowledged is sent again with its packet id.",
        "MQTT-4.6.0-1": "PUBLISHes are sent again in their order.",
    },
    "test_runs::test_aliases_end_with_the_connection": {
        "MQTT-3.3.2-7": "Topic aliases end with the connection.",
    },
    "test_runs::test_a_client_resolves_them_too": {
        "MQTT-3.3.2-10": "A client takes all aliases up to its maximum.",
    },
    "test_runs::test_aliases_are_resolved": {
        "MQTT-3.3.2-12": "A server takes all aliases up to its maximum.",
    },
    "test_inflight::test_receive_maximum": {
        "MQTT-3.3.4-7": "A client does not exceed Receive Maximum.",
    },
    "test_inflight::test_the_quota": {
        "MQTT-3.3.4-9": "A server does not exceed Receive Maximum.",
        "MQTT-4.9.0-1": "The send quota begins with at most Receive Maximum.",
        "MQTT-4.9.0-2": "At quota 0 no PUBLISH of QoS 1 or 2 is sent.",
    },
    "test_sending::test_explanations_that_are_too_large": {
        "MQTT-3.4.2-2": "No reason string that makes PUBACK too large.",
        "MQTT-3.4.2-3": "No user properties that make it too large.",
        "MQTT-3.5.2-2": "No reason string that makes PUBREC too large.",
        "MQTT-3.5.2-3": "No user properties that make it too large.",
        "MQTT-3.6.2-2": "No reason string that makes PUBREL too large.",
        "MQTT-3.6.2-3": "No user properties that make it too large.",
        "MQTT-3.7.2-2": "No reason string that makes PUBCOMP too large.",
        "MQTT-3.7.2-3": "No user properties that make it too large.",
        "MQTT-3.9.2-1": "No reason string that makes SUBACK too large.",
        "MQTT-3.9.2-2": "No user properties that make it too large.",
        "MQTT-3.11.2-1": "No reason string that makes UNSUBACK too large.",
        "MQTT-3.11.2-2": "No user properties that make it too large.",
        "MQTT-3.14.2-3": "No reason string that makes DISCONNECT too large.",
        "MQTT-3.14.2-4": "No user properties that make it too large.",
    },
    "test_sending::test_the_first_error_is_sent_and_nothing_follows": {
        "MQTT-3.14.4-1": "After DISCONNECT its sender sends nothing more.",
        "MQTT-3.14.4-2": "And closes the connection.",
        "MQTT-4.13.2-1": "CONNACK and DISCONNECT of 0x80 and above close the connection.",
    },
    "test_rules::test_the_flags_of_auth": {
        "MQTT-3.15.1-1": "AUTH has no flags, or it is malformed.",
    },
    "test_rules::test_the_reason_codes_of_auth": {
        "MQTT-3.15.2-1": "AUTH has one of its reason codes.",
    },
    "test_packets::test_packets_that_cannot_be_encoded": {
        "MQTT-4.3.1-1": "QoS 0 is sent without DUP.",
    },
    "test_inflight::test_packet_ids_are_never_used_twice": {
        "MQTT-4.3.2-1": "QoS 1: an unused packet identifier for a new message.",
        "MQTT-4.3.3-1": "QoS 2: an unused packet identifier for a new message.",
    },
    "test_inflight::test_a_message_of_qos_1": {
        "MQTT-4.3.2-3": "QoS 1: unacknowledged until PUBACK.",
    },
    "test_inflight::test_a_repeated_message_is_known_until_it_is_released": {
        "MQTT-4.3.2-5": "QoS 1: after PUBACK the same packet identifier is a new message.",
        "MQTT-4.3.3-10": "QoS 2: until PUBREL the same PUBLISH gets PUBREC and is not delivered again.",
        "MQTT-4.3.3-12": "QoS 2: after PUBCOMP the packet identifier is a new message.",
    },
    "test_inflight::test_every_acknowledgement_in_every_state": {
        "MQTT-4.3.3-3": "QoS 2: unacknowledged until PUBREC.",
    },
    "test_inflight::test_a_message_of_qos_2": {
        "MQTT-4.3.3-4": "QoS 2: PUBREL with that packet identifier after a PUBREC of success.",
        "MQTT-4.3.3-5": "QoS 2: PUBREL is unacknowledged until PUBCOMP.",
    },
    "test_inflight::test_a_refused_message_is_forgotten": {
        "MQTT-4.3.3-9": "QoS 2: after a PUBREC of failure the packet identifier is a new message.",
    },
    "test_topics::test_wrong_topic_filters": {
        "MQTT-4.7.1-1": "# stands alone, last.",
        "MQTT-4.7.1-2": "+ stands alone in its level.",
    },
    "test_properties::test_properties_that_cannot_be_encoded": {
        "MQTT-4.7.3-3": "They have at most 65,535 bytes.",
    },
    "test_topics::test_different_topics_have_different_addresses": {
        "MQTT-4.7.3-4": "They are not normalised for matching.",
    },
    "test_topics::test_shared_subscriptions": {
        "MQTT-4.8.2-1": "A shared subscription has a share name.",
    },
    "test_rules::test_auth_in_turn": {
        "MQTT-4.12.0-3": "So has the client's answer.",
    },
    "test_rules::test_auth_names_the_method_of_connect": {
        "MQTT-4.12.0-5": "AUTH and the accepting CONNACK name the method of CONNECT.",
        "MQTT-4.12.1-1": "A client that authenticates again does it with the same method.",
    },
    "test_packets::test_every_packet": {
        "MQTT-6.0.0-2": "Packets are not aligned to WebSocket frames.",
    },
    BROKER: {
        "MQTT-2.2.1-5": "PUBACK, PUBREC, PUBREL and PUBCOMP have the packet identifier of the PUBLISH.",
        "MQTT-2.2.1-6": "SUBACK and UNSUBACK have that of the SUBSCRIBE and UNSUBSCRIBE.",
        "MQTT-4.3.3-11": "QoS 2: PUBREL is answered with PUBCOMP of the same packet identifier.",
        "MQTT-3.1.2-4": "Clean Start discards the session.",
        "MQTT-3.1.2-5": "Without Clean Start an existing session goes on.",
        "MQTT-3.1.2-6": "Without Clean Start and session there is a new one.",
        "MQTT-3.1.2-7": "A will is stored with the session.",
        "MQTT-3.1.2-8": "A will is published after the connection, the delay or the session, unless it was taken back.",
        "MQTT-3.1.2-10": "A will that was published or taken back is removed.",
        "MQTT-3.1.2-14": "A will without Will Retain is published as not retained.",
        "MQTT-3.1.2-15": "A will with Will Retain is published as retained.",
        "MQTT-3.1.2-22": "A server closes after one and a half times Keep Alive without a packet.",
        "MQTT-3.1.2-23": "The session is kept for the session expiry interval.",
        "MQTT-3.1.2-28": "No response information that was not asked for.",
        "MQTT-3.1.3-2": "The client identifier identifies the session.",
        "MQTT-3.1.3-6": "For an empty client identifier the server assigns a unique one.",
        "MQTT-3.1.3-7": "It goes on with that, and says so in CONNACK.",
        "MQTT-3.1.3-9": "No will if the client is back before the will delay.",
        "MQTT-3.1.4-2": "So does one that fails authentication or authorization.",
        "MQTT-3.1.4-3": "A client identifier in use takes over: DISCONNECT 0x8E to the other.",
        "MQTT-3.1.4-4": "Clean Start is processed.",
        "MQTT-3.1.4-5": "CONNECT is acknowledged with CONNACK 0x00.",
        "MQTT-3.2.2-2": "Clean Start: Session Present is 0.",
        "MQTT-3.2.2-3": "Otherwise it tells whether there is a session.",
        "MQTT-3.2.2-9": "A server without QoS 1 or 2 says its Maximum QoS.",
        "MQTT-3.2.2-10": "It accepts subscriptions of any QoS nevertheless.",
        "MQTT-3.2.2-12": "A will of higher QoS is refused.",
        "MQTT-3.2.2-13": "A retained will is refused where retained messages are not supported.",
        "MQTT-3.2.2-16": "An assigned client identifier is sent, and is new.",
        "MQTT-3.2.2-22": "Without one the server uses the client's.",
        "MQTT-3.3.1-3": "DUP says whether this PUBLISH is sent again, whatever came in.",
        "MQTT-3.3.1-5": "A retained message replaces the one before it.",
        "MQTT-3.3.1-6": "An empty one removes it.",
        "MQTT-3.3.1-7": "An empty one is not stored.",
        "MQTT-3.3.1-8": "A message without RETAIN changes nothing of this.",
        "MQTT-3.3.1-9": "Retain Handling 0: retained messages are sent.",
        "MQTT-3.3.1-10": "Retain Handling 1: only for a new subscription.",
        "MQTT-3.3.1-11": "Retain Handling 2: they are not.",
        "MQTT-3.3.1-12": "Without Retain As Published, RETAIN is 0.",
        "MQTT-3.3.1-13": "With it, RETAIN stays.",
        "MQTT-3.3.2-3": "What a server sends matches the subscription.",
        "MQTT-3.3.2-4": "The payload format indicator is sent on.",
        "MQTT-3.3.2-5": "An expired message that was not begun to be sent is deleted.",
        "MQTT-3.3.2-6": "The message expiry interval is reduced by the time of waiting.",
        "MQTT-3.3.2-15": "The response topic is sent on.",
        "MQTT-3.3.2-16": "The correlation data are sent on.",
        "MQTT-3.3.2-17": "The user properties are sent on; but for names that are the broker's own.",
        "MQTT-3.3.2-20": "The content type is sent on.",
        "MQTT-3.3.4-1": "PUBLISH is answered as its QoS demands.",
        "MQTT-3.3.4-2": "Overlapping subscriptions: the maximum QoS of them.",
        "MQTT-3.3.4-3": "Their subscription identifiers are sent.",
        "MQTT-3.3.4-4": "In one copy: all of them.",
        "MQTT-3.3.4-5": "In several copies: each its own.",
        "MQTT-3.3.4-10": "A server holds back nothing but PUBLISH for it.",
        "MQTT-3.8.3-3": "No Local: not to the client that published.",
        "MQTT-3.8.4-1": "SUBSCRIBE is answered with SUBACK.",
        "MQTT-3.8.4-2": "SUBACK has its packet identifier.",
        "MQTT-3.8.4-3": "The same topic filter again replaces the subscription.",
        "MQTT-3.8.4-4": "Retained messages are sent again, and no message is lost by it.",
        "MQTT-3.8.4-5": "Several topic filters are as several SUBSCRIBEs with one SUBACK.",
        "MQTT-3.8.4-6": "SUBACK has a reason code for each.",
        "MQTT-3.8.4-7": "It is the granted QoS or a failure.",
        "MQTT-3.8.4-8": "Messages come with the lower QoS of publication and grant.",
        "MQTT-3.9.3-1": "The reason codes have the order of the topic filters.",
        "MQTT-3.10.4-1": "Topic filters are compared character by character, and equal ones deleted.",
        "MQTT-3.10.4-2": "No new messages for them are added.",
        "MQTT-3.10.4-3": "Deliveries of QoS 1 and 2 that have begun are completed.",
        "MQTT-3.10.4-4": "UNSUBSCRIBE is answered with UNSUBACK.",
        "MQTT-3.10.4-5": "With its packet identifier, also when nothing was deleted.",
        "MQTT-3.10.4-6": "Several topic filters are as several UNSUBSCRIBEs with one UNSUBACK.",
        "MQTT-3.11.3-1": "The reason codes have the order of the topic filters.",
        "MQTT-3.12.4-1": "PINGREQ is answered with PINGRESP.",
        "MQTT-3.14.4-3": "DISCONNECT 0x00 takes the will back.",
        "MQTT-4.1.0-1": "The session is not discarded while the connection is open.",
        "MQTT-4.1.0-2": "It is discarded after the session expiry interval.",
        "MQTT-4.2.0-1": "The transport is ordered and lossless.",
        "MQTT-4.3.2-4": "QoS 1: PUBACK with that packet identifier, once the message is owned.",
        "MQTT-4.3.3-7": "QoS 2: a message that was sent does not expire.",
        "MQTT-4.3.3-8": "QoS 2: PUBREC with that packet identifier, once the message is owned.",
        "MQTT-4.3.3-13": "QoS 2: the exchange goes on although the message has expired.",
        "MQTT-4.4.0-2": "What was refused is not sent again.",
        "MQTT-4.5.0-1": "A message that a server owns is added to the sessions that match.",
        "MQTT-4.6.0-5": "Messages of a client, a topic and a QoS are sent in the order of their arrival.",
        "MQTT-4.6.0-6": "Every topic is ordered for subscriptions that are not shared.",
        "MQTT-4.7.2-1": "A leading wildcard does not match $ topics.",
        "MQTT-4.8.2-3": "The QoS granted to the client is respected.",
        "MQTT-4.8.2-4": "QoS 2: a delivery that has begun is completed to that client.",
        "MQTT-4.8.2-5": "QoS 2: it goes to no other client, even if the session ends.",
        "MQTT-4.8.2-6": "A message that was refused goes to no other client.",
        "MQTT-4.9.0-3": "All else is processed nevertheless.",
        "MQTT-4.12.0-1": "An unknown authentication method may get CONNACK 0x8C, and is closed.",
        "MQTT-4.12.1-2": "If that fails, the connection is closed.",
        "MQTT-6.0.0-1": "MQTT goes in binary WebSocket frames.",
        "MQTT-6.0.0-4": "The server selects mqtt.",
    },
    CLIENT: {
        "MQTT-3.1.2-20": "A client that has nothing to send sends PINGREQ within Keep Alive.",
        "MQTT-3.1.2-21": "A client uses the Server Keep Alive.",
        "MQTT-3.2.2-4": "A client without session closes when one is present.",
        "MQTT-3.2.2-5": "A client discards its session when none is present.",
        "MQTT-3.2.2-11": "A client sends no higher QoS.",
        "MQTT-3.2.2-14": "A client sends no retained messages then.",
        "MQTT-3.2.2-21": "A client uses the Server Keep Alive.",
        "MQTT-3.3.4-8": "A client holds back nothing but PUBLISH for it.",
        "MQTT-4.5.0-2": "A client acknowledges whatever it does with a message.",
        "MQTT-4.6.0-2": "PUBACKs are sent in the order of the PUBLISHes.",
        "MQTT-4.6.0-3": "PUBRECs are sent in the order of the PUBLISHes.",
        "MQTT-4.6.0-4": "PUBRELs are sent in the order of the PUBRECs.",
        "MQTT-6.0.0-3": "A client offers the subprotocol mqtt.",
    },
}

#: Statement and proof, by number.
STATEMENTS: Final = {id: (text, proof) for proof, named in PROVED.items() for id, text in named.items()}
