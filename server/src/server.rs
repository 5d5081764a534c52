//! A running server: its data directory, broker, read model and listener, from start to shutdown.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lastword_broker::checkpoint::PublicKey;
use lastword_broker::clock::Gap;
use lastword_broker::files::{Files, write_private};
use lastword_broker::identity::Secret;
use lastword_broker::{BrokerFailure, Handle};
use lastword_facts::Seq;
use lastword_store::DataDir;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;

use crate::base_path::BasePath;
use crate::calls::Context;
use crate::edges::http::{Mount, Pages, app, listen};
use crate::tls::{Certificate, Tls, Transport};
use crate::workspace::{Opening, StartError, Workspace, WorkspaceSettings, console_url, is_full, open_index};

/// The most connections that wait to be accepted; the system may allow fewer.
const BACKLOG: u32 = 4_096;
/// How long open connections may take to end at a shutdown.
pub const DRAIN_MAX: Duration = Duration::from_secs(5);

/// The configuration that a server starts with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data directory; created if it doesn't exist.
    pub data_dir: PathBuf,
    /// The address to listen on; port 0 picks a free port.
    pub listen: SocketAddr,
    /// The certificate to serve with over TLS; `None` serves plain HTTP.
    pub tls: Option<Tls>,
    /// The edges of other crates.
    pub mounts: Vec<Mount>,
    /// The pages for browsers.
    pub pages: Pages,
    /// What is of the workspace, and not of the listener.
    pub settings: WorkspaceSettings,
}

impl Config {
    /// Returns the configuration of a server on a free port of the loopback interface, with the default limits.
    #[must_use]
    pub fn local(data_dir: &Path) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: None,
            mounts: Vec::new(),
            pages: Pages::default(),
            settings: WorkspaceSettings::default(),
        }
    }
}

/// A running server. [`Server::shutdown`] ends it in order.
pub struct Server {
    addr: SocketAddr,
    workspace: Workspace,
    certificate: Option<Arc<Certificate>>,
}

impl Server {
    /// Opens the data directory, starts the broker and listens.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub fn start(config: Config) -> BoxFuture<'static, Result<Self, StartError>> {
        // Boxed, so that this crate compiles all that runs under it, once, and not each program and each test again.
        Box::pin(Self::start_all(config))
    }

    async fn start_all(config: Config) -> Result<Self, StartError> {
        // Before the data directory is touched.
        check(&config)?;
        let files = Files::local(&config.data_dir);
        let log = DataDir::at(files.dir()).open()?;
        // Once the data directory is ours, and before the broker starts: a start that fails leaves no fact in the log.
        let certificate = config.tls.as_ref().map(|tls| Certificate::open(tls, files.dir(), &config.settings.hosts));
        let certificate = certificate.transpose()?.map(Arc::new);
        let transport = Transport::of(config.tls.as_ref());
        let index = open_index(files.dir(), log.reader().as_ref())?;
        let bound = bind(config.listen);
        let (listener, addr) = bound.map_err(|(address, source)| StartError::Listen { address, source })?;
        let (mounts, pages) = (config.mounts, config.pages);
        let url = local_url(transport, addr);
        let opening =
            Opening { log, core: None, gap: Gap::Unknown, index, files, reserve: None, transport, url, nodes: None };
        let mut workspace = Workspace::open(config.settings, opening).await?;
        let routes = app(workspace.context().clone(), &mounts, pages);
        let stopping = workspace.context().stopping.clone();
        workspace.spawn(listen::serve(listener, routes, certificate.clone(), stopping, Duration::ZERO));
        Ok(Self { addr, workspace, certificate })
    }

    const fn ctx(&self) -> &Context {
        self.workspace.context()
    }

    /// Returns the address that it listens on, with the actual port.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the URL of the address that it listens on, with its path.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}{}", self.ctx().transport.scheme(), self.addr, self.ctx().path)
    }

    /// Returns the path under which a reverse proxy serves it.
    #[must_use]
    pub fn path(&self) -> &BasePath {
        &self.ctx().path
    }

    /// Returns the URL at which programs on this machine reach it.
    #[must_use]
    pub fn local_url(&self) -> String {
        local_url(self.ctx().transport, self.addr)
    }

    /// Returns the URL of the console for a human's browser: under the first configured host name if the certificate is
    /// one for names.
    #[must_use]
    pub fn console_url(&self) -> String {
        console_url(self.ctx(), &self.local_url())
    }

    /// Returns the SHA-256 of its certificate, as `sha256:HEX`; `None` without TLS.
    #[must_use]
    pub fn fingerprint(&self) -> Option<String> {
        self.certificate.as_ref().map(|certificate| certificate.fingerprint())
    }

    /// Watches the position up to which the read model has indexed the log.
    #[must_use]
    pub fn indexed(&self) -> watch::Receiver<Seq> {
        self.ctx().indexed.clone()
    }

    /// Returns the broker's handle, for callers in the same process.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.ctx().handle
    }

    /// Creates a code for the console's one-time link, `/sign-in#CODE`. It signs the first human in once, within 15
    /// minutes, and replaces any earlier code.
    ///
    /// # Errors
    /// The system's random number generator fails.
    pub fn sign_in_code(&self) -> io::Result<Secret> {
        self.ctx().sign_in.mint(self.ctx().handle.now(), None).map(|(code, _)| code)
    }

    /// Returns the public key that verifies checkpoints of this server's log.
    #[must_use]
    pub fn checkpoint_key(&self) -> &PublicKey {
        self.ctx().signer.public()
    }

    #[cfg(test)]
    pub(crate) const fn context(&self) -> &Context {
        self.ctx()
    }

    /// Writes a small file into the data directory, readable by its owner only. On a full disk it uses the reserve.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn keep_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.ctx().handle.disk().with_reserve(|| write_private(path, bytes), is_full)
    }

    /// Returns the path of the file with the first human's token.
    #[must_use]
    pub fn operator_token_file(&self) -> &Path {
        self.workspace.operator_token_file()
    }

    /// Waits until the broker fails, and returns the reason. Never returns while the broker runs.
    pub async fn failed(&self) -> BrokerFailure {
        let mut failed = self.ctx().handle.failed();
        let found = failed.wait_for(Option::is_some).await.ok().and_then(|failed| failed.clone());
        found.unwrap_or_else(|| BrokerFailure { reason: "the broker is gone".into(), bug: true })
    }

    /// Shuts the server down: refuses new calls, finishes those in progress, and saves a snapshot.
    pub fn shutdown(self) -> BoxFuture<'static, ()> {
        Box::pin(self.workspace.close(DRAIN_MAX))
    }
}

/// Returns the URL of a listener for programs on this machine.
#[must_use]
pub fn local_url(transport: Transport, addr: SocketAddr) -> String {
    let ip: IpAddr = match addr.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    format!("{}://{}", transport.scheme(), SocketAddr::new(ip, addr.port()))
}

/// Listens with a long backlog: with a short one, a flood of connections drops a human's, which the system retries only
/// after a second. Returns the actual address as well.
///
/// # Errors
/// The system refuses; returned with the address.
pub fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), (SocketAddr, io::Error)> {
    let listen = || -> io::Result<_> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let addr = listener.local_addr()?;
        Ok((listener, addr))
    };
    listen().map_err(|source| (address, source))
}

fn check(config: &Config) -> Result<(), StartError> {
    if config.mounts.iter().any(|mount| mount.anonymous) {
        for_this_machine(config.listen)?;
    }
    config.settings.oidc.as_ref().map_or(Ok(()), |oidc| oidc.check(&config.settings.path)).map_err(StartError::from)
}

/// An anonymous edge needs no token, so it accepts no caller from another machine.
fn for_this_machine(address: SocketAddr) -> Result<(), StartError> {
    if !address.ip().is_loopback() {
        return Err(StartError::Anonymous { address });
    }
    tracing::warn!("callers without a token reach an anonymous edge");
    Ok(())
}
