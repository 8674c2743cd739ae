use crate::Failure;
use fe2o3_amqp::session::SessionHandle;
pub async fn run(_session: &mut SessionHandle<()>) -> Result<(), Failure> {
    Ok(())
}
