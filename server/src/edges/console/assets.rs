//! Style, scripts and the icon: part of the program, each under a name that its content gives.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

use super::frame::POLICY;
use crate::identity::hex;

/// The content never changes under its name.
const FOREVER: &str = "public, max-age=31536000, immutable";

/// A file of the console.
struct Asset {
    name: String,
    kind: &'static str,
    content: &'static str,
}

impl Asset {
    fn new(stem: &str, extension: &str, kind: &'static str, content: &'static str) -> Self {
        let hash = hex(&Sha256::digest(content.as_bytes())[..6]);
        Self { name: format!("{stem}-{hash}.{extension}"), kind, content }
    }
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("console", "css", "text/css; charset=utf-8", include_str!("../../../assets/console.css"))
});
static THEME: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("theme", "js", SCRIPT, include_str!("../../../assets/theme.js")));
/// One file: htmx looks at the page as soon as a moment passes after it was run, and the script of the console has to be
/// there before. A page would else hear of nothing.
static CONSOLE: LazyLock<Asset> = LazyLock::new(|| {
    let parts = concat!(
        include_str!("../../../assets/htmx/htmx.min.js"),
        "\n",
        include_str!("../../../assets/hints.js"),
        "\n",
        include_str!("../../../assets/console.js"),
    );
    Asset::new("console", "js", SCRIPT, parts)
});
/// The stream of hints for all pages of a browser; a page runs it itself where the browser has no shared workers.
static HINTS: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("hints", "js", SCRIPT, include_str!("../../../assets/hints.js")));
static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("../../../assets/icon.svg")));

fn all() -> [&'static Asset; 5] {
    [&*STYLE, &*THEME, &*CONSOLE, &*HINTS, &*ICON]
}

fn url(asset: &Asset) -> String {
    format!("/assets/{}", asset.name)
}

/// Where the style sheet is.
pub(super) fn style() -> String {
    url(&STYLE)
}

/// Where the icon is.
pub(super) fn icon() -> String {
    url(&ICON)
}

/// The script that sets the theme before anything is painted.
pub(super) fn theme() -> String {
    url(&THEME)
}

/// The script that may come after the page.
pub(super) fn script() -> String {
    url(&CONSOLE)
}

/// The script of the worker that pages share.
pub(super) fn worker() -> String {
    url(&HINTS)
}

/// `GET /assets/{name}`; without a session, for there is nothing in it.
pub(super) async fn serve(Path(name): Path<String>) -> Response {
    let Some(asset) = all().into_iter().find(|asset| asset.name == name) else {
        return (StatusCode::NOT_FOUND, "no such asset\n").into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, asset.kind),
        (header::CACHE_CONTROL, FOREVER),
        // A worker has the policy of its script, not that of the page.
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, asset.content).into_response()
}
