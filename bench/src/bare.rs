//! The baseline: a file with length-prefixed records and one `fdatasync` per batch. No guards, no delivery, no index.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::thread;

use tokio::sync::{mpsc, oneshot};

use crate::failure::Failure;
use crate::load::{Load, Measured, drive};

/// Most records per batch.
const BATCH_MAX: usize = 256;

/// Appends records of `load.body` bytes with `load.in_flight` writers, each of which waits for the disk.
pub(crate) async fn bare_file(dir: &Path, load: Load) -> Result<Measured, Failure> {
    let file = File::create(dir.join("bare.log")).map_err(Failure::unavailable)?;
    let (send, receive) = mpsc::channel(load.in_flight.max(1));
    let writer = thread::spawn(move || write(file, receive));
    let record = vec![b'x'; load.body];
    let measured = drive(load, |_| {
        let (send, record) = (send.clone(), record.clone());
        async move {
            let (done, wait) = oneshot::channel();
            send.send((record, done)).await.map_err(Failure::unavailable)?;
            wait.await.map_err(Failure::unavailable)
        }
    })
    .await;
    drop(send);
    writer.join().map_err(|_| Failure::unavailable("the writer failed"))?.map_err(Failure::unavailable)?;
    measured
}

type Record = (Vec<u8>, oneshot::Sender<()>);

fn write(mut file: File, mut receive: mpsc::Receiver<Record>) -> std::io::Result<()> {
    let (mut bytes, mut waiting) = (Vec::new(), Vec::new());
    while let Some(first) = receive.blocking_recv() {
        let mut next = Some(first);
        while let Some((record, done)) = next {
            bytes.extend_from_slice(&u32::try_from(record.len()).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend_from_slice(&record);
            waiting.push(done);
            next = if waiting.len() < BATCH_MAX { receive.try_recv().ok() } else { None };
        }
        file.write_all(&bytes)?;
        file.sync_data()?;
        bytes.clear();
        for done in waiting.drain(..) {
            // At the end of the run a writer may be gone.
            let _gone = done.send(());
        }
    }
    Ok(())
}
