//! A TCP proxy that can be cut, for partitions between a node and NATS.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::copy;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::nats_server::runtime;

/// What passes through a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    /// Both directions.
    All,
    /// Nothing, and connections end.
    Nothing,
    /// What the client sends, but no answer: neither end notices that the other is cut off.
    RequestsOnly,
}

/// A proxy to one server, for as long as this lives.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    passing: Arc<watch::Sender<Passing>>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(crate) fn to(port: u16) -> Self {
        let (passing, watching) = watch::channel(Passing::All);
        let listener = runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let task = runtime().spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(pass(client, port, watching.clone()));
            }
        });
        Self { address, passing: Arc::new(passing), task }
    }

    pub(crate) fn set(&self, passing: Passing) {
        self.passing.send_replace(passing);
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

async fn pass(client: TcpStream, port: u16, mut passing: watch::Receiver<Passing>) {
    if *passing.borrow() == Passing::Nothing {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = async {
        let _ended = copy(&mut from_client, &mut to_server).await;
    };
    let mut answers = passing.clone();
    let down = async {
        loop {
            if answers.wait_for(|passing| *passing == Passing::All).await.is_err() {
                return;
            }
            tokio::select! {
                _ = copy(&mut from_server, &mut to_client) => return,
                _ = answers.wait_for(|passing| *passing != Passing::All) => {}
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
        _ = passing.wait_for(|passing| *passing == Passing::Nothing) => {}
    }
}
