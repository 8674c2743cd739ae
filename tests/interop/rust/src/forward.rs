//! Takes messages from queues and sends what they say on: every value is decoded to Rust's, and encoded from it.

use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::types::messaging::{AmqpValue, ApplicationProperties, FilterSet, Message, Source};
use fe2o3_amqp::types::primitives::{SimpleValue, Symbol, Value};
use fe2o3_amqp::{Receiver, Sender};
use serde_amqp::described::Described;
use serde_amqp::descriptor::Descriptor;

use crate::Failure;

/// Follow routes "FROM>TO,TO" one after the other; each ends with the case "end".
pub async fn run(
    session: &mut SessionHandle<()>,
    selector: &str,
    routes: &[String],
) -> Result<(), Failure> {
    for route in routes {
        let (from, to) = route.split_once('>').ok_or("a route is FROM>TO,TO")?;
        follow(session, selector, from, to).await?;
    }
    Ok(())
}

async fn follow(
    session: &mut SessionHandle<()>,
    selector: &str,
    from: &str,
    to: &str,
) -> Result<(), Failure> {
    let mut receiver = Receiver::builder()
        .name(format!("from {from}"))
        .source(source(from, selector))
        .attach(session)
        .await?;
    let mut senders = Vec::new();
    for address in to.split(',') {
        senders.push(Sender::attach(session, format!("to {address}"), address).await?);
    }
    loop {
        let delivery = receiver.recv::<AmqpValue<Value>>().await?;
        receiver.accept(&delivery).await?;
        let message = delivery.into_message();
        let said = message.application_properties.ok_or("no properties")?;
        let name = said.0.get("case").cloned();
        for sender in &mut senders {
            let mut kept = ApplicationProperties::default();
            for key in ["case", "kind"] {
                if let Some(value) = said.0.get(key) {
                    kept.0.insert(key.to_string(), value.clone());
                }
            }
            let copy = Message::builder()
                .application_properties(kept)
                .body(message.body.clone())
                .build();
            sender.send(copy).await?.accepted_or("not accepted")?;
        }
        if name == Some(SimpleValue::String("end".to_string())) {
            break;
        }
    }
    for sender in senders {
        sender.close().await?;
    }
    receiver.close().await?;
    Ok(())
}

fn source(address: &str, selector: &str) -> Source {
    let name = Symbol::from("apache.org:selector-filter:string");
    let mut filters = FilterSet::new();
    filters.insert(
        name.clone(),
        Described {
            descriptor: Descriptor::Name(name),
            value: Value::from(selector),
        }
        .into(),
    );
    Source::builder().address(address).filter(filters).build()
}
