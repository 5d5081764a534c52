//! Compressed responses, and the mask that keeps their sizes from telling a form's secret.

use std::io::Write as _;

use axum::body::{Body, to_bytes};
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, VARY};
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use lastword_broker::identity::{hex, random, unhex};

/// Shorter pages are sent as they are.
const BYTES_MIN: usize = 1_024;
/// The most bytes of a page; a longer one is sent as it is.
const BYTES_MAX: usize = 64 * 1024 * 1024;
const SECRET_BYTES: usize = 16;

/// Returns whether the browser takes gzip.
pub(super) fn is_accepted(headers: &HeaderMap) -> bool {
    let named = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    named.flat_map(|value| value.split(',')).any(|part| matches!(part.trim().split(';').next(), Some("gzip" | "*")))
}

/// Compresses bytes; `None` if that fails or makes them no smaller.
pub(super) fn gzip(bytes: &[u8], level: Compression) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), level);
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().filter(|packed| packed.len() < bytes.len())
}

/// Compresses a page. A stream of hints stays as it is, because each hint has to leave at once.
pub(super) async fn packed(response: Response) -> Response {
    let html = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    let known = response.headers().get(CONTENT_LENGTH).is_none_or(|length| length.as_bytes().len() < 9);
    if !html || !known || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, BYTES_MAX).await else {
        return Response::from_parts(parts, Body::empty());
    };
    let small = if bytes.len() < BYTES_MIN { None } else { gzip(&bytes, Compression::fast()) };
    let Some(small) = small else { return Response::from_parts(parts, Body::from(bytes)) };
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(parts, Body::from(small))
}

/// Returns a form's secret under a mask of its own. Each page has another one, so the size of a compressed page, which
/// an observer sees, tells nothing of the secret.
pub(super) fn masked(secret: &str) -> String {
    let (Some(secret), Ok(random)) = (unhex::<SECRET_BYTES>(secret), random()) else { return String::new() };
    let mask: Vec<u8> = random.into_iter().take(SECRET_BYTES).collect();
    let hidden: Vec<u8> = secret.iter().zip(&mask).map(|(a, b)| a ^ b).collect();
    hex(&mask) + &hex(&hidden)
}

/// Returns whether a form has the secret, under whatever mask.
pub(super) fn is_secret(sent: &str, secret: &str) -> bool {
    let Some((mask, hidden)) = sent.split_at_checked(2 * SECRET_BYTES) else { return false };
    let (Some(mask), Some(hidden)) = (unhex::<SECRET_BYTES>(mask), unhex::<SECRET_BYTES>(hidden)) else { return false };
    let shown: Vec<u8> = mask.iter().zip(&hidden).map(|(a, b)| a ^ b).collect();
    unhex::<SECRET_BYTES>(secret).is_some_and(|secret| secret.as_slice() == shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_looks_different_on_each_page_and_is_known_on_all() {
        let secret = "00112233445566778899aabbccddeeff";
        let (one, two) = (masked(secret), masked(secret));
        assert_ne!(one, two);
        assert!(is_secret(&one, secret) && is_secret(&two, secret));
        for wrong in ["", secret, &one[..40], &one.replace(['0', '1', '2'], "3"), "é"] {
            assert!(!is_secret(wrong, secret), "{wrong}");
        }
    }

    #[test]
    fn gzip_is_used_where_the_browser_takes_it() {
        let accepts = |value: &'static str| {
            is_accepted(&HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(value))]))
        };
        assert!(accepts("gzip, deflate, br") && accepts("br;q=1.0, gzip;q=0.8") && accepts("*"));
        assert!(!accepts("br") && !accepts("identity") && !is_accepted(&HeaderMap::new()));
    }
}
