//! The browsers that humans switched notifications on in: `push.json` in the data directory.

use std::fmt;
use std::io;

use axum::http::header::{AUTHORIZATION, CONTENT_ENCODING};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use futures_util::future::{BoxFuture, join_all};
use lastword_broker::Handle;
use lastword_broker::files::Files;
use lastword_broker::identity::{hex, random};
use lastword_facts::fact::{Credential, Role};
use lastword_facts::ids::AgentId;
use lastword_facts::{Code, Refusal, Time};
use lastword_wire::FieldError;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, watch};

use super::channel::{Severity, Target};
use super::push::{BrowserKeys, MESSAGE_BYTES_MAX, ServerKey};
use super::target::{Resolve, System};
use super::words::Notification;
use super::{fresh_id, wall_time};
use crate::backup::FILE_PUSH;
use crate::error::ApiError;
use crate::kept;
use crate::views::{DeviceView, NotifiedDevices, Subscription};

const VERSION: u32 = 1;
/// The most devices of a human, and of a workspace.
const OF_HUMAN_MAX: usize = 8;
const ALL_MAX: usize = 128;
/// The most bytes of the address that a browser gives.
const ENDPOINT_BYTES_MAX: usize = 1_024;
const NAME_CHARS_MAX: usize = 64;
/// For how long a service keeps a message for a browser that is away, in seconds.
const TTL_S: &str = "86400";

#[derive(Clone, Serialize, Deserialize)]
struct Device {
    id: String,
    name: String,
    human: u32,
    /// The hash of the human's token: another one ends it, as it ends sessions.
    token: Credential,
    since: Time,
    endpoint: String,
    p256dh: String,
    auth: String,
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct Book {
    /// The key by which push services know the server, once there was a device.
    key: Option<String>,
    kept: Vec<Device>,
}

/// The devices of a workspace.
pub struct Devices {
    handle: Handle,
    files: Files,
    /// The console's address, for the operators of push services.
    subject: String,
    allow_private: bool,
    /// Held over a write of the file, so that what is acted on is what a restart knows.
    book: Mutex<Book>,
    count: watch::Sender<usize>,
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Devices").field("count", &*self.count.borrow()).finish_non_exhaustive()
    }
}

/// What came of a message to one device.
enum Pushed {
    Taken,
    /// The browser has ended its subscription.
    Gone,
    Failed(String),
}

impl Devices {
    /// Reads the devices of a workspace.
    pub(crate) fn open(handle: Handle, files: Files, address: Option<&str>, allow_private: bool) -> io::Result<Self> {
        let book: Book = kept::read(&files, FILE_PUSH, VERSION)?;
        let count = watch::channel(book.kept.len()).0;
        // Services take no other kinds of addresses.
        let subject = address.filter(|address| address.starts_with("https://"));
        let subject = subject.unwrap_or("mailto:lastword@example.com").to_owned();
        Ok(Self { handle, files, subject, allow_private, book: Mutex::new(book), count })
    }

    /// Returns the number of devices, and hears when it changes.
    pub(super) fn count(&self) -> watch::Receiver<usize> {
        self.count.subscribe()
    }

    /// Returns the public key that a browser subscribes with; the first call makes the key.
    async fn key(&self) -> Result<String, ApiError> {
        if let Some(key) = self.book.lock().await.key.as_deref().and_then(ServerKey::read) {
            return Ok(key.public());
        }
        let made = ServerKey::generate().map_err(|error| ApiError::internal(&error.to_string()))?;
        self.change(|book| _ = book.key.get_or_insert(made)).await?;
        let key = self.book.lock().await.key.as_deref().and_then(ServerKey::read);
        key.map(|key| key.public()).ok_or_else(|| ApiError::internal(&format!("the key in {FILE_PUSH} is damaged")))
    }

    /// Adds a device of a human, or replaces the one of the same browser.
    async fn add(&self, human: AgentId, new: Subscription) -> Result<(), ApiError> {
        let Subscription { endpoint, p256dh, auth, name } = new;
        if endpoint.len() > ENDPOINT_BYTES_MAX {
            return Err(FieldError::new("endpoint", format!("is longer than {ENDPOINT_BYTES_MAX} bytes")).into());
        }
        Target::new(&endpoint, self.allow_private)
            .map_err(|why| FieldError::new("endpoint", format!("can't be used: {why}")))?;
        BrowserKeys::parse(&p256dh, &auth)
            .ok_or_else(|| FieldError::new("p256dh", "or auth is no key of a browser"))?;
        let (token, _) = self.handle.proof_of(human).ok_or_else(|| Refusal::new(Code::Unauthenticated))?;
        let id = random().map_err(|error| ApiError::internal(&error.to_string()))?;
        let name = name.trim().chars().take(NAME_CHARS_MAX).collect();
        let since = self.handle.now();
        let device =
            Device { id: format!("dev-{}", hex(&id[..8])), name, human: human.0, token, since, endpoint, p256dh, auth };
        let kept = self.alive().await;
        let others = |of: &dyn Fn(&Device) -> bool| {
            kept.iter().filter(|known| known.endpoint != device.endpoint && of(known)).count()
        };
        for (max, current) in [(OF_HUMAN_MAX, others(&|known| known.human == human.0)), (ALL_MAX, others(&|_| true))] {
            if current >= max {
                let refusal = Refusal::new(Code::Saturated).about("devices");
                return Err(refusal.numbers(max as u64, current as u64 + 1).into());
            }
        }
        self.change(|book| {
            book.kept.retain(|known| known.endpoint != device.endpoint && self.is_alive(known));
            book.kept.push(device);
        })
        .await
    }

    /// Lists the devices of a human.
    async fn list(&self, human: AgentId) -> Vec<DeviceView> {
        let own = self.alive().await.into_iter().filter(|device| device.human == human.0);
        let service = |endpoint: &str| reqwest::Url::parse(endpoint).ok()?.host_str().map(str::to_owned);
        own.map(|device| DeviceView {
            service: service(&device.endpoint).unwrap_or_default(),
            id: device.id,
            name: device.name,
            since: device.since,
        })
        .collect()
    }

    /// Removes a device of a human.
    async fn remove(&self, human: AgentId, id: &str) -> Result<(), ApiError> {
        self.change(|book| book.kept.retain(|device| device.human != human.0 || device.id != id)).await
    }

    /// Sends a test to a device of a human.
    async fn test(&self, human: AgentId, id: &str) -> Result<(), ApiError> {
        let own = self.alive().await.into_iter().find(|device| device.human == human.0 && device.id == id);
        let device = own.ok_or_else(|| ApiError::unknown(id))?;
        let fresh = fresh_id().map_err(|error| ApiError::internal(&error.to_string()))?;
        let told = Notification::test_of(fresh, "devices", wall_time(), None);
        match self.push(&device, &told, &System).await {
            Pushed::Taken => Ok(()),
            Pushed::Gone => {
                self.remove(human, id).await?;
                let text = "The browser has ended its subscription, so the device is removed: switch it on again there";
                Err(ApiError::new(Code::Malformed, text))
            }
            Pushed::Failed(why) => {
                Err(ApiError::new(Code::Malformed, format!("The push service didn't take it: {why}")))
            }
        }
    }

    /// Sends a notification to all devices. Those whose browsers have ended their subscriptions are removed.
    pub(super) async fn notify(&self, told: &Notification) -> Result<(), String> {
        let devices = self.alive().await;
        let results = join_all(devices.iter().map(|device| self.push(device, told, &System))).await;
        let gone: Vec<&str> = std::iter::zip(&devices, &results)
            .filter(|(_, pushed)| matches!(pushed, Pushed::Gone))
            .map(|(device, _)| device.id.as_str())
            .collect();
        if !gone.is_empty() {
            tracing::info!(devices = gone.len(), "browsers have ended their subscriptions");
            let removed = self.change(|book| book.kept.retain(|device| !gone.contains(&device.id.as_str()))).await;
            removed.map_err(|fault| fault.0.detail)?;
        }
        let failed =
            results.iter().filter_map(|pushed| if let Pushed::Failed(why) = pushed { Some(why) } else { None });
        let failed: Vec<&String> = failed.collect();
        let words = |first: &&String| format!("{} of {} devices: {first}", failed.len(), devices.len());
        failed.first().map_or(Ok(()), |first| Err(words(first)))
    }

    async fn push(&self, device: &Device, told: &Notification, resolver: &impl Resolve) -> Pushed {
        match self.posted(device, told, resolver).await {
            Ok(status) if status.is_success() => Pushed::Taken,
            Ok(StatusCode::NOT_FOUND | StatusCode::GONE) => Pushed::Gone,
            Ok(status) => Pushed::Failed(format!("the push service answered {status}")),
            Err(why) => Pushed::Failed(why),
        }
    }

    async fn posted(
        &self,
        device: &Device,
        told: &Notification,
        resolver: &impl Resolve,
    ) -> Result<StatusCode, String> {
        let target = Target::new(&device.endpoint, self.allow_private)?;
        let keys = BrowserKeys::parse(&device.p256dh, &device.auth).ok_or("its keys are damaged")?;
        let human = AgentId(device.human);
        let role =
            self.handle.query(move |live| live.state.agent(human).map_or(Role::Viewer, |human| human.role)).await;
        let shown = told.for_device(MESSAGE_BYTES_MAX, role.map_err(|gone| gone.to_string())?);
        let body = keys.encrypt(&shown).map_err(|error| error.to_string())?;
        let key =
            self.book.lock().await.key.as_deref().and_then(ServerKey::read).ok_or("the server's key is damaged")?;
        let service = target.url.origin().ascii_serialization();
        let authorization =
            key.authorization(&service, &self.subject, wall_time()).map_err(|error| error.to_string())?;
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(&authorization).map_err(|error| error.to_string())?);
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("aes128gcm"));
        headers.insert("ttl", HeaderValue::from_static(TTL_S));
        let urgency = match told.severity {
            Severity::Low => "low",
            Severity::Normal => "normal",
            Severity::Urgent => "high",
        };
        headers.insert("urgency", HeaderValue::from_static(urgency));
        target.call(headers, body, resolver).await
    }

    /// Returns the devices whose humans have the tokens that they had.
    async fn alive(&self) -> Vec<Device> {
        let book = self.book.lock().await;
        book.kept.iter().filter(|device| self.is_alive(device)).cloned().collect()
    }

    fn is_alive(&self, device: &Device) -> bool {
        self.handle.proof_of(AgentId(device.human)).is_some_and(|(token, _)| token == device.token)
    }

    /// Changes the book, and its file first.
    async fn change(&self, change: impl FnOnce(&mut Book)) -> Result<(), ApiError> {
        let mut book = self.book.lock().await;
        let mut next = book.clone();
        change(&mut next);
        kept::write(&self.files, FILE_PUSH, VERSION, &next).await?;
        self.count.send_replace(next.kept.len());
        *book = next;
        Ok(())
    }
}

impl NotifiedDevices for Devices {
    fn key(&self) -> BoxFuture<'_, Result<String, ApiError>> {
        Box::pin(Self::key(self))
    }

    fn add(&self, human: AgentId, new: Subscription) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(Self::add(self, human, new))
    }

    fn list(&self, human: AgentId) -> BoxFuture<'_, Vec<DeviceView>> {
        Box::pin(Self::list(self, human))
    }

    fn remove<'a>(&'a self, human: AgentId, id: &'a str) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(Self::remove(self, human, id))
    }

    fn test<'a>(&'a self, human: AgentId, id: &'a str) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(Self::test(self, human, id))
    }
}
