//! Nothing at all.

use tokio::time::sleep;

use crate::lab::Lab;
use crate::report::{Measure, Row};
use crate::server::{Server, Settings};
use crate::{Error, machine};

const MEMORY: Measure = Measure::lower("memory", "MiB");
const CPU_PART: Measure = Measure::lower("CPU", "% of one");

pub(super) async fn idle(lab: &mut Lab) -> Result<Row, Error> {
    let mut row = Row::new("idle", "A fresh store over SQLite, all roles.");
    for _ in 0..lab.scale.rounds {
        let dir = tempfile::tempdir()?;
        let server = Server::start(&lab.binary, dir.path(), &Settings::sqlite()).await?;
        sleep(lab.scale.calm / 5).await;
        let before = server.cpu()?;
        sleep(lab.scale.calm).await;
        row.add(CPU_PART, 100.0 * (server.cpu()? - before).as_secs_f64() / lab.scale.calm.as_secs_f64());
        row.add(MEMORY, machine::memory(server.pid())?.0);
        server.stop().await?;
    }
    row.goal(MEMORY, 40.0);
    row.goal(CPU_PART, 0.2);
    Ok(row)
}
