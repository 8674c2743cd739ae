//! What fe2o3-amqp can do with a broker: one line "ok NAME" for each scenario.

use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::transaction::{
    Controller, Transaction, TransactionDischarge, TransactionalRetirement,
};
use fe2o3_amqp::types::messaging::{Body, Message, Modified, Source};
use fe2o3_amqp::types::primitives::Value;
use fe2o3_amqp::{Delivery, Receiver, Sender};

use crate::Failure;

type Session = SessionHandle<()>;

/// All of them.
pub async fn run(session: &mut Session) -> Result<(), Failure> {
    in_order(session, "queue://rust.order").await?;
    println!("ok in order");
    outcomes(session, "queue://rust.outcomes").await?;
    println!("ok outcomes");
    large(session, "queue://rust.large").await?;
    println!("ok a large message");
    committed(session, "queue://rust.in", "queue://rust.out").await?;
    println!("ok a transaction");
    rolled_back(session, "queue://rust.back.in", "queue://rust.back.out").await?;
    println!("ok rollback");
    refused(session).await?;
    println!("ok errors");
    Ok(())
}

async fn in_order(session: &mut Session, address: &str) -> Result<(), Failure> {
    let mut sender = Sender::attach(session, address, address).await?;
    for number in 0..100 {
        put(&mut sender, number).await?;
    }
    let mut receiver = Receiver::attach(session, "in order", address).await?;
    for number in 0..100 {
        let delivery = take(&mut receiver, number).await?;
        receiver.accept(&delivery).await?;
    }
    sender.close().await?;
    receiver.close().await?;
    Ok(())
}

async fn outcomes(session: &mut Session, address: &str) -> Result<(), Failure> {
    let mut sender = Sender::attach(session, address, address).await?;
    put(&mut sender, 0).await?;
    let mut receiver = Receiver::attach(session, "outcomes", address).await?;
    let first = take(&mut receiver, 0).await?;
    receiver.release(&first).await?;
    let again = take(&mut receiver, 0).await?;
    same(attempts(&again), 0)?;
    let failed = Modified {
        delivery_failed: Some(true),
        undeliverable_here: None,
        message_annotations: None,
    };
    receiver.modify(&again, failed).await?;
    let last = take(&mut receiver, 0).await?;
    same(attempts(&last), 1)?;
    receiver.reject(&last, None).await?;
    put(&mut sender, 1).await?;
    let next = take(&mut receiver, 1).await?;
    receiver.accept(&next).await?;
    sender.close().await?;
    receiver.close().await?;
    Ok(())
}

async fn large(session: &mut Session, address: &str) -> Result<(), Failure> {
    let content: String = (0..5 << 20)
        .map(|n: u32| char::from(b'a' + (n % 23) as u8))
        .collect();
    let mut sender = Sender::attach(session, address, address).await?;
    sender
        .send(content.clone())
        .await?
        .accepted_or("not accepted")?;
    let mut receiver = Receiver::attach(session, "large", address).await?;
    let delivery: Delivery<String> = receiver.recv().await?;
    same(delivery.body() == &content, true)?;
    receiver.accept(&delivery).await?;
    sender.close().await?;
    receiver.close().await?;
    Ok(())
}

async fn committed(session: &mut Session, from: &str, to: &str) -> Result<(), Failure> {
    let mut filling = Sender::attach(session, from, from).await?;
    let mut sender = Sender::attach(session, to, to).await?;
    let mut working = Receiver::attach(session, "working", from).await?;
    let mut receiver = Receiver::attach(session, "done", to).await?;
    let controller = Controller::attach(session, "committed").await?;
    put(&mut filling, 1).await?;
    let work = take(&mut working, 1).await?;
    let transaction = Transaction::declare(&controller, None).await?;
    transaction.accept(&mut working, &work).await?;
    for number in [2, 3] {
        transaction.post(&mut sender, number).await?;
    }
    transaction.commit().await?;
    for number in [2, 3] {
        let delivery = take(&mut receiver, number).await?;
        receiver.accept(&delivery).await?;
    }
    put(&mut filling, 4).await?;
    let next = take(&mut working, 4).await?;
    working.accept(&next).await?;
    controller.close().await?;
    for link in [filling, sender] {
        link.close().await?;
    }
    for link in [working, receiver] {
        link.close().await?;
    }
    Ok(())
}

async fn rolled_back(session: &mut Session, from: &str, to: &str) -> Result<(), Failure> {
    let mut filling = Sender::attach(session, from, from).await?;
    let mut sender = Sender::attach(session, to, to).await?;
    let mut working = Receiver::attach(session, "working", from).await?;
    let mut receiver = Receiver::attach(session, "nothing", to).await?;
    let controller = Controller::attach(session, "rolled back").await?;
    put(&mut filling, 1).await?;
    let work = take(&mut working, 1).await?;
    let transaction = Transaction::declare(&controller, None).await?;
    transaction.accept(&mut working, &work).await?;
    transaction.post(&mut sender, 2).await?;
    transaction.rollback().await?;
    let again = take(&mut working, 1).await?;
    same(attempts(&again), 1)?;
    working.accept(&again).await?;
    put(&mut sender, 3).await?;
    let only = take(&mut receiver, 3).await?;
    receiver.accept(&only).await?;
    controller.close().await?;
    for link in [filling, sender] {
        link.close().await?;
    }
    for link in [working, receiver] {
        link.close().await?;
    }
    Ok(())
}

async fn refused(session: &mut Session) -> Result<(), Failure> {
    let nameless = Receiver::builder()
        .name("nameless")
        .source(Source::default())
        .attach(session)
        .await;
    match nameless {
        Ok(_) => Err("a receiver without an address was attached".into()),
        Err(_) => Ok(()),
    }
}

async fn put(sender: &mut Sender, number: i32) -> Result<(), Failure> {
    let message = Message::builder()
        .header(fe2o3_amqp::types::messaging::Header {
            durable: true,
            ..Default::default()
        })
        .value(number)
        .build();
    sender.send(message).await?.accepted_or("not accepted")?;
    Ok(())
}

/// The next message, which has to be this one.
async fn take(receiver: &mut Receiver, number: i32) -> Result<Delivery<Body<Value>>, Failure> {
    let delivery: Delivery<Body<Value>> = receiver.recv().await?;
    match delivery.body() {
        Body::Value(value) => same(&value.0, &Value::Int(number))?,
        _ => return Err("the body is no value".into()),
    }
    Ok(delivery)
}

fn attempts<T>(delivery: &Delivery<T>) -> u32 {
    let header = delivery.message().header.as_ref();
    header.map_or(0, |header| header.delivery_count)
}

pub fn same<T: PartialEq + std::fmt::Debug>(found: T, wanted: T) -> Result<(), Failure> {
    if found == wanted {
        Ok(())
    } else {
        Err(format!("{found:?} instead of {wanted:?}").into())
    }
}
