//! fe2o3-amqp and rumqttc against the broker; run by tests/interop/test_programs.py.
//!
//!     interop PORT suite
//!     interop PORT mqtt
//!     interop PORT forward SELECTOR FROM>TO,TO ...

mod forward;
mod mqtt;
mod suite;

use fe2o3_amqp::{Connection, Session};
use tokio::net::TcpStream;

/// Whatever went wrong.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let port = arguments[0].parse()?;
    if arguments[1] == "mqtt" {
        return mqtt::run(port).await;
    }
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?; // an outcome is a frame that nobody answers: the next would wait for its TCP ack
    let mut connection = Connection::builder()
        .container_id("rust")
        .open_with_stream(stream)
        .await?;
    let mut session = Session::begin(&mut connection).await?;
    match &arguments[1][..] {
        "suite" => suite::run(&mut session).await?,
        _ => forward::run(&mut session, &arguments[2], &arguments[3..]).await?,
    }
    session.end().await?;
    connection.close().await?;
    Ok(())
}
