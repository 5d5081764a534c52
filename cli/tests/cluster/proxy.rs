//! A TCP proxy that can be cut, for partitions between a node and NATS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::nats_server::runtime;
use crate::traffic::now;

/// What passes through a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    /// Both directions.
    All,
    /// Nothing, and connections end.
    Nothing,
    /// Nothing, and neither end notices.
    Silence,
    /// What the client sends, but no answer: neither end notices that the other is cut off.
    RequestsOnly,
}

/// What TCP sends at a time, and the least that it waits for an acknowledgement beyond the way there and back (Linux).
const SEGMENT: usize = 1_448;
const RETRANSMIT_MIN: Duration = Duration::from_millis(200);

/// The way between the ends, the same in each direction.
#[derive(Clone, Copy, Debug, Default)]
struct Road {
    /// How long what passes is on it.
    way: Duration,
    /// The share of the packets that get lost.
    lost: f64,
}

impl Road {
    /// Returns how long TCP holds up what has this many bytes because packets of it get lost. On this machine none do: what TCP
    /// makes of it is that a segment comes later, and all behind it, each time that it is lost by twice the time of the last.
    fn held_up(self, bytes: usize) -> Duration {
        let again = 2 * self.way + RETRANSMIT_MIN;
        let segments = (0..bytes.div_ceil(SEGMENT)).map(|_| {
            let times = std::iter::repeat_with(|| rand::rng().random_bool(self.lost)).take_while(|lost| *lost).count();
            again * ((1 << times.min(8)) - 1)
        });
        segments.max().unwrap_or_default()
    }
}

/// A proxy to one server, for as long as this lives.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    passing: Arc<watch::Sender<Passing>>,
    road: Arc<watch::Sender<Road>>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(crate) fn to(port: u16) -> Self {
        let (passing, watching) = watch::channel(Passing::All);
        let (road, roads) = watch::channel(Road::default());
        let listener = runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let task = runtime().spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(pass(client, port, watching.clone(), roads.clone()));
            }
        });
        Self { address, passing: Arc::new(passing), road: Arc::new(road), task }
    }

    pub(crate) fn set(&self, passing: Passing) {
        self.passing.send_replace(passing);
    }

    /// Has what passes be on its way for this long in each direction, and this share of the packets get lost.
    pub(crate) fn delay(&self, way: Duration, lost: f64) {
        self.road.send_replace(Road { way, lost });
    }

    /// Returns whether no connection goes through it.
    pub(crate) fn is_idle(&self) -> bool {
        // The listener looks, and each connection.
        self.passing.receiver_count() == 1
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Copies until either end closes; what is read is written after its way.
async fn copy(from: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin), road: &watch::Receiver<Road>) {
    let (sender, mut queue) = mpsc::unbounded_channel();
    let read = async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            let road = *road.borrow();
            let due = Instant::from_std(now()) + road.way + road.held_up(read);
            if sender.send((due, buffer[..read].to_vec())).is_err() {
                return;
            }
        }
    };
    let write = async {
        while let Some((due, bytes)) = queue.recv().await {
            sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _closed = to.shutdown().await;
    };
    tokio::join!(read, write);
}

/// Copies while this passes, and holds up what comes else.
async fn while_passing(
    mut passing: watch::Receiver<Passing>,
    passes: impl Fn(Passing) -> bool,
    copying: impl Future<Output = ()>,
) {
    let (mut copying, mut watching) = (std::pin::pin!(copying), passing.clone());
    while passing.wait_for(|it| passes(*it)).await.is_ok() {
        tokio::select! {
            () = &mut copying => return,
            _ = watching.wait_for(|it| !passes(*it)) => {}
        }
    }
}

async fn pass(client: TcpStream, port: u16, mut passing: watch::Receiver<Passing>, road: watch::Receiver<Road>) {
    if *passing.borrow() == Passing::Nothing {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = while_passing(passing.clone(), |it| it != Passing::Silence, copy(&mut from_client, &mut to_server, &road));
    let down = while_passing(passing.clone(), |it| it == Passing::All, copy(&mut from_server, &mut to_client, &road));
    tokio::select! {
        () = up => {}
        () = down => {}
        _ = passing.wait_for(|passing| *passing == Passing::Nothing) => {}
    }
}
