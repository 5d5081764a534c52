//! Style sheet, scripts and icon. They are compiled into the program, and each has a name derived from its content.

use std::sync::LazyLock;

use axum::body::Bytes;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use lastword_broker::identity::hex;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::frame::POLICY;
use super::packed::{gzip, is_accepted};
use super::parts::url;

/// The content under a name never changes, so browsers may keep it.
const FOREVER: &str = "public, max-age=31536000, immutable";

/// A file that the console serves.
struct Asset {
    name: String,
    kind: &'static str,
    content: Bytes,
    /// The content under gzip, if that is smaller.
    packed: Option<Bytes>,
}

impl Asset {
    fn new(stem: &str, extension: &str, kind: &'static str, content: impl Into<Bytes>) -> Self {
        let content = content.into();
        let hash = hex(&Sha256::digest(&content)[..6]);
        let packed = gzip(&content, Compression::best()).map(Bytes::from);
        Self { name: format!("{stem}-{hash}.{extension}"), kind, content, packed }
    }
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The style sheet.
pub(super) const STYLE_SHEET: &str = include_str!("../assets/console.css");
static STYLE: LazyLock<Asset> = LazyLock::new(|| Asset::new("console", "css", "text/css; charset=utf-8", STYLE_SHEET));
static THEME: LazyLock<Asset> = LazyLock::new(|| Asset::new("theme", "js", SCRIPT, include_str!("../assets/theme.js")));
/// One file, because htmx processes the page a moment after it is loaded, and the console's script has to be there
/// before. Otherwise a page would receive no hints.
static CONSOLE: LazyLock<Asset> = LazyLock::new(|| {
    let parts = concat!(
        include_str!("../assets/htmx/htmx.min.js"),
        "\n",
        include_str!("../assets/hints.js"),
        "\n",
        include_str!("../assets/steady.js"),
        "\n",
        include_str!("../assets/reading.js"),
        "\n",
        include_str!("../assets/console.js"),
    );
    Asset::new("console", "js", SCRIPT, parts)
});
/// The stream of hints for all pages of a browser, run in a shared worker. In a browser without shared workers, each
/// page runs it.
static HINTS: LazyLock<Asset> = LazyLock::new(|| Asset::new("hints", "js", SCRIPT, include_str!("../assets/hints.js")));
static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("../assets/icon.svg")));

/// The icon without round corners, for systems that cut it themselves.
static SQUARE_ICON: LazyLock<Asset> = LazyLock::new(|| {
    let picture: &'static [u8] = include_bytes!("../assets/icon.png");
    Asset::new("icon", "png", "image/png", picture)
});
/// What makes the console a program of its own on a phone. Its paths are relative to its own, so that they lead below a
/// proxy's path as well.
static MANIFEST: LazyLock<Asset> = LazyLock::new(|| {
    let manifest = json!({
        "name": "Lastword", "start_url": "../", "scope": "../", "id": "../", "display": "standalone",
        "background_color": "#fbfaf7", "theme_color": "#ffffff",
        "icons": [
            {"src": ICON.name, "type": "image/svg+xml", "sizes": "any"},
            {"src": SQUARE_ICON.name, "type": "image/png", "sizes": "512x512", "purpose": "any maskable"},
        ],
    });
    Asset::new("manifest", "webmanifest", "application/manifest+json", manifest.to_string())
});

/// The worker that shows notifications and opens their pages. Its scope is its folder, so it isn't among the other files.
const NOTIFIER: &str = include_str!("../assets/notifier.js");

/// `GET /notifier.js`. Browsers compare it with the one that they have.
pub(super) async fn notifier() -> Response {
    let headers = [
        (header::CONTENT_TYPE, SCRIPT),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, NOTIFIER).into_response()
}

fn all() -> [&'static Asset; 7] {
    [&*STYLE, &*THEME, &*CONSOLE, &*HINTS, &*ICON, &*SQUARE_ICON, &*MANIFEST]
}

fn at(asset: &Asset) -> String {
    url(&format!("/assets/{}", asset.name))
}

/// Returns the path of the style sheet.
pub(super) fn style() -> String {
    at(&STYLE)
}

/// Returns the path of the icon.
pub(super) fn icon() -> String {
    at(&ICON)
}

/// Returns the path of the icon without round corners.
pub(super) fn square_icon() -> String {
    at(&SQUARE_ICON)
}

/// Returns the path of what makes the console a program of its own.
pub(super) fn manifest() -> String {
    at(&MANIFEST)
}

/// Returns the path of the script that sets the theme before the page is painted.
pub(super) fn theme() -> String {
    at(&THEME)
}

/// Returns the path of the script that may load after the page.
pub(super) fn script() -> String {
    at(&CONSOLE)
}

/// Returns the path of the script for the shared worker.
pub(super) fn worker() -> String {
    at(&HINTS)
}

/// `GET /assets/{name}`. Needs no session, because the files contain nothing confidential.
pub(super) async fn serve(Path(name): Path<String>, request: HeaderMap) -> Response {
    let Some(asset) = all().into_iter().find(|asset| asset.name == name) else {
        return (StatusCode::NOT_FOUND, "no such asset\n").into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, asset.kind),
        (header::CACHE_CONTROL, FOREVER),
        // A worker is subject to the policy of its own script, not to that of the page.
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    if let Some(packed) = asset.packed.as_ref().filter(|_| is_accepted(&request)) {
        let encoding = [(header::CONTENT_ENCODING, "gzip"), (header::VARY, "Accept-Encoding")];
        return (headers, encoding, packed.clone()).into_response();
    }
    (headers, [(header::VARY, "Accept-Encoding")], asset.content.clone()).into_response()
}
