//! What rumqttc can do with a broker, in MQTT 3.1.1 and 5: one line "ok NAME" for each scenario.

use std::collections::VecDeque;
use std::time::Duration;

use rumqttc::v5;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::suite::same;
use crate::Failure;

const PATIENCE: Duration = Duration::from_secs(20);

/// All of them.
pub async fn run(port: u16) -> Result<(), Failure> {
    for version in [4, 5] {
        every_qos(port, version).await?;
        println!("ok {version}: every QoS");
        retained_and_will(port, version).await?;
        println!("ok {version}: a retained message and a will");
        resumed(port, version).await?;
        println!("ok {version}: a session that goes on");
        shared(port, version).await?;
        println!("ok {version}: a shared subscription");
    }
    properties(port).await?;
    println!("ok 5: properties");
    Ok(())
}

// -- a client of either version --------------------------------------------------------------------------------------

/// What an event loop tells, as far as the scenarios ask.
enum Seen {
    Connected(bool),
    Subscribed,
    Sent,
    Answered,
    Arrived(Message),
    Lost(String),
}

#[derive(Clone, Debug, PartialEq)]
struct Message {
    topic: String,
    payload: String,
    qos: u8,
    retain: bool,
    properties: Option<v5::mqttbytes::v5::PublishProperties>,
}

enum Sender {
    Old(rumqttc::AsyncClient),
    New(v5::AsyncClient),
}

/// A connection; its event loop runs by itself.
struct Peer {
    sender: Sender,
    seen: UnboundedReceiver<Seen>,
    arrived: VecDeque<Message>,
    events: JoinHandle<()>,
    present: bool,
}

/// How a client connects.
#[derive(Clone, Copy, Default)]
struct Manner<'a> {
    /// Its session outlives the connection.
    stays: bool,
    /// It acknowledges nothing.
    mute: bool,
    /// Topic of a retained will.
    will: Option<&'a str>,
}

impl Peer {
    async fn connect(
        port: u16,
        version: u8,
        id: &str,
        manner: Manner<'_>,
    ) -> Result<Peer, Failure> {
        let (tell, seen) = unbounded_channel();
        let id = format!("rust-{version}-{id}");
        let (sender, events) = if version == 5 {
            let mut options = v5::MqttOptions::new(id, "127.0.0.1", port);
            options
                .set_clean_start(!manner.stays)
                .set_manual_acks(manner.mute);
            options.set_session_expiry_interval(manner.stays.then_some(100));
            if let Some(topic) = manner.will {
                let qos = v5::mqttbytes::QoS::AtLeastOnce;
                options.set_last_will(v5::mqttbytes::v5::LastWill::new(
                    topic, "gone", qos, true, None,
                ));
            }
            let (client, mut events) = v5::AsyncClient::new(options, 100);
            let task = tokio::spawn(async move {
                loop {
                    let seen = match events.poll().await {
                        Ok(event) => new_event(event),
                        Err(error) => Some(Seen::Lost(error.to_string())),
                    };
                    let lost = matches!(seen, Some(Seen::Lost(_)));
                    if seen.is_some_and(|seen| tell.send(seen).is_err()) || lost {
                        return;
                    }
                }
            });
            (Sender::New(client), task)
        } else {
            let mut options = rumqttc::MqttOptions::new(id, "127.0.0.1", port);
            options
                .set_clean_session(!manner.stays)
                .set_manual_acks(manner.mute);
            if let Some(topic) = manner.will {
                options.set_last_will(rumqttc::LastWill::new(
                    topic,
                    "gone",
                    rumqttc::QoS::AtLeastOnce,
                    true,
                ));
            }
            let (client, mut events) = rumqttc::AsyncClient::new(options, 100);
            let task = tokio::spawn(async move {
                loop {
                    let seen = match events.poll().await {
                        Ok(event) => old_event(event),
                        Err(error) => Some(Seen::Lost(error.to_string())),
                    };
                    let lost = matches!(seen, Some(Seen::Lost(_)));
                    if seen.is_some_and(|seen| tell.send(seen).is_err()) || lost {
                        return;
                    }
                }
            });
            (Sender::Old(client), task)
        };
        let mut peer = Peer {
            sender,
            seen,
            arrived: VecDeque::new(),
            events,
            present: false,
        };
        peer.present = peer
            .until(|seen| {
                if let Seen::Connected(present) = seen {
                    Some(*present)
                } else {
                    None
                }
            })
            .await?;
        Ok(peer)
    }

    /// Wait for something; messages that come before it are kept.
    async fn until<T>(&mut self, wanted: impl Fn(&Seen) -> Option<T>) -> Result<T, Failure> {
        loop {
            let seen = timeout(PATIENCE, self.seen.recv())
                .await?
                .ok_or("the connection is over")?;
            if let Some(found) = wanted(&seen) {
                return Ok(found);
            }
            match seen {
                Seen::Arrived(message) => self.arrived.push_back(message),
                Seen::Lost(why) => return Err(why.into()),
                _ => {}
            }
        }
    }

    async fn subscribe(&mut self, filter: &str, qos: u8) -> Result<(), Failure> {
        match &self.sender {
            Sender::Old(client) => client.subscribe(filter, rumqttc::qos(qos)?).await?,
            Sender::New(client) => client.subscribe(filter, new_qos(qos)).await?,
        }
        self.until(|seen| matches!(seen, Seen::Subscribed).then_some(()))
            .await
    }

    /// Until it has left, or the broker has answered.
    async fn publish(
        &mut self,
        topic: &str,
        qos: u8,
        retain: bool,
        payload: &str,
    ) -> Result<(), Failure> {
        match &self.sender {
            Sender::Old(client) => {
                client
                    .publish(topic, rumqttc::qos(qos)?, retain, payload)
                    .await?
            }
            Sender::New(client) => {
                client
                    .publish(topic, new_qos(qos), retain, payload.to_owned())
                    .await?
            }
        }
        self.published(qos).await
    }

    async fn published(&mut self, qos: u8) -> Result<(), Failure> {
        self.until(move |seen| {
            let done = if qos == 0 {
                matches!(seen, Seen::Sent)
            } else {
                matches!(seen, Seen::Answered)
            };
            done.then_some(())
        })
        .await
    }

    async fn message(&mut self) -> Result<Message, Failure> {
        if let Some(message) = self.arrived.pop_front() {
            return Ok(message);
        }
        self.until(|seen| {
            if let Seen::Arrived(message) = seen {
                Some(message.clone())
            } else {
                None
            }
        })
        .await
    }

    /// End the connection without a word.
    async fn drop_it(self) {
        self.events.abort();
        let _ = self.events.await;
    }

    async fn disconnect(self) -> Result<(), Failure> {
        match &self.sender {
            Sender::Old(client) => client.disconnect().await?,
            Sender::New(client) => client.disconnect().await?,
        }
        timeout(PATIENCE, self.events).await??;
        Ok(())
    }
}

fn new_qos(qos: u8) -> v5::mqttbytes::QoS {
    v5::mqttbytes::qos(qos).expect("0 to 2")
}

fn old_event(event: rumqttc::Event) -> Option<Seen> {
    use rumqttc::{Event, Outgoing, Packet};
    match event {
        Event::Incoming(Packet::ConnAck(connack)) => Some(Seen::Connected(connack.session_present)),
        Event::Incoming(Packet::SubAck(_)) => Some(Seen::Subscribed),
        Event::Incoming(Packet::PubAck(_) | Packet::PubComp(_)) => Some(Seen::Answered),
        Event::Outgoing(Outgoing::Publish(_)) => Some(Seen::Sent),
        Event::Incoming(Packet::Publish(publish)) => Some(Seen::Arrived(Message {
            topic: publish.topic,
            payload: String::from_utf8_lossy(&publish.payload).into_owned(),
            qos: publish.qos as u8,
            retain: publish.retain,
            properties: None,
        })),
        _ => None,
    }
}

fn new_event(event: v5::Event) -> Option<Seen> {
    use rumqttc::Outgoing;
    use v5::mqttbytes::v5::Packet;
    use v5::Event;
    match event {
        Event::Incoming(Packet::ConnAck(connack)) => Some(Seen::Connected(connack.session_present)),
        Event::Incoming(Packet::SubAck(_)) => Some(Seen::Subscribed),
        Event::Incoming(Packet::PubAck(_) | Packet::PubComp(_)) => Some(Seen::Answered),
        Event::Outgoing(Outgoing::Publish(_)) => Some(Seen::Sent),
        Event::Incoming(Packet::Publish(publish)) => Some(Seen::Arrived(Message {
            topic: String::from_utf8_lossy(&publish.topic).into_owned(),
            payload: String::from_utf8_lossy(&publish.payload).into_owned(),
            qos: publish.qos as u8,
            retain: publish.retain,
            properties: publish.properties,
        })),
        _ => None,
    }
}

// -- scenarios -------------------------------------------------------------------------------------------------------

async fn every_qos(port: u16, version: u8) -> Result<(), Failure> {
    let mut taker = Peer::connect(port, version, "taker", Manner::default()).await?;
    taker.subscribe(&format!("rust/{version}/qos/+"), 2).await?;
    let mut giver = Peer::connect(port, version, "giver", Manner::default()).await?;
    for number in 0..60 {
        let qos = number % 3;
        giver
            .publish(
                &format!("rust/{version}/qos/{qos}"),
                qos,
                false,
                &number.to_string(),
            )
            .await?;
    }
    let mut next = [0, 1, 2];
    for _ in 0..60 {
        let message = taker.message().await?;
        let expected = &mut next[message.qos as usize];
        same(message.payload, expected.to_string())?;
        same(message.topic, format!("rust/{version}/qos/{}", message.qos))?;
        *expected += 3;
    }
    same(next, [60, 61, 62])?;
    giver.disconnect().await?;
    taker.disconnect().await
}

async fn retained_and_will(port: u16, version: u8) -> Result<(), Failure> {
    let topic = format!("rust/{version}/status");
    let manner = Manner {
        will: Some(&topic),
        ..Manner::default()
    };
    let mut mortal = Peer::connect(port, version, "mortal", manner).await?;
    mortal.publish(&topic, 1, true, "here").await?;
    let mut watcher = Peer::connect(port, version, "watcher", Manner::default()).await?;
    watcher.subscribe(&topic, 1).await?;
    let first = watcher.message().await?;
    same((&first.payload[..], first.retain), ("here", true))?;
    mortal.drop_it().await;
    let last = watcher.message().await?;
    same((&last.payload[..], last.retain), ("gone", false))?;
    let mut late = Peer::connect(port, version, "late", Manner::default()).await?;
    late.subscribe(&topic, 1).await?;
    same(late.message().await?.payload, "gone".to_owned())?;
    watcher.publish(&topic, 1, true, "").await?;
    late.disconnect().await?;
    watcher.disconnect().await
}

async fn resumed(port: u16, version: u8) -> Result<(), Failure> {
    let topic = format!("rust/{version}/session");
    let stays = Manner {
        stays: true,
        ..Manner::default()
    };
    let mut away = Peer::connect(
        port,
        version,
        "away",
        Manner {
            mute: true,
            ..stays
        },
    )
    .await?;
    same(away.present, false)?;
    away.subscribe(&topic, 2).await?;
    let mut giver = Peer::connect(port, version, "giver", Manner::default()).await?;
    for number in 0..4 {
        giver
            .publish(&topic, 1 + number % 2, false, &number.to_string())
            .await?;
    }
    for number in 0..4 {
        same(away.message().await?.payload, number.to_string())?;
    }
    away.drop_it().await;
    for number in 4..8 {
        giver
            .publish(&topic, 1 + number % 2, false, &number.to_string())
            .await?;
    }
    let mut back = Peer::connect(port, version, "away", stays).await?;
    same(back.present, true)?;
    for number in 0..8 {
        let message = back.message().await?;
        same(
            (message.payload, message.qos),
            (number.to_string(), 1 + number % 2),
        )?;
    }
    giver.disconnect().await?;
    back.disconnect().await?;
    let last = Peer::connect(port, version, "away", Manner::default()).await?;
    same(last.present, false)?;
    last.disconnect().await
}

async fn shared(port: u16, version: u8) -> Result<(), Failure> {
    let topic = format!("rust/{version}/shared");
    let filter = format!("$share/rust/{topic}");
    let mut one = Peer::connect(port, version, "one", Manner::default()).await?;
    let mut other = Peer::connect(port, version, "other", Manner::default()).await?;
    one.subscribe(&filter, 1).await?;
    other.subscribe(&filter, 1).await?;
    let mut giver = Peer::connect(port, version, "giver", Manner::default()).await?;
    for number in 0..20 {
        giver.publish(&topic, 1, false, &number.to_string()).await?;
    }
    let mut arrived = Vec::new();
    for _ in 0..10 {
        arrived.push(one.message().await?.payload.parse::<u8>()?);
        arrived.push(other.message().await?.payload.parse::<u8>()?);
    }
    arrived.sort_unstable();
    same(arrived, (0..20).collect())?;
    giver.disconnect().await?;
    one.disconnect().await?;
    other.disconnect().await
}

async fn properties(port: u16) -> Result<(), Failure> {
    let sent = v5::mqttbytes::v5::PublishProperties {
        payload_format_indicator: Some(1),
        response_topic: Some("rust/5/replies".to_owned()),
        correlation_data: Some(vec![0, 255].into()),
        content_type: Some("text/plain".to_owned()),
        user_properties: [("b", "1"), ("a", "2"), ("b", "1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..Default::default()
    };
    let mut peer = Peer::connect(port, 5, "properties", Manner::default()).await?;
    peer.subscribe("rust/5/properties", 1).await?;
    if let Sender::New(client) = &peer.sender {
        let qos = v5::mqttbytes::QoS::AtLeastOnce;
        client
            .publish_with_properties("rust/5/properties", qos, false, "x", sent.clone())
            .await?;
    }
    let message = peer.message().await?;
    same(message.properties, Some(sent))?;
    peer.disconnect().await
}
