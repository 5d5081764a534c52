//! Text files as editors and shells of all systems write them.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// The byte order mark of UTF-8.
const BOM: char = '\u{feff}';

/// Reads a text in UTF-8, with or without a byte order mark, or in UTF-16 with one.
///
/// # Errors
/// The file can't be read, or is neither: the error says what to do.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    decoded(fs::read(path)?).map_err(|what| io::Error::new(ErrorKind::InvalidData, what))
}

/// Decodes a text; the byte order mark isn't part of it.
pub(crate) fn decoded(bytes: Vec<u8>) -> Result<String, String> {
    let wide = |order: fn([u8; 2]) -> u16| {
        let units = bytes[2..].chunks_exact(2).map(|pair| order([pair[0], pair[1]]));
        let text: Result<String, _> = char::decode_utf16(units).collect();
        text.ok()
            .filter(|_| bytes.len().is_multiple_of(2))
            .ok_or_else(|| "is broken UTF-16: save it as UTF-8".to_owned())
    };
    match &*bytes {
        [0xff, 0xfe, ..] => return wide(u16::from_le_bytes),
        [0xfe, 0xff, ..] => return wide(u16::from_be_bytes),
        _ if bytes.contains(&0) => {
            return Err("is UTF-16 without a byte order mark, or no text: save it as UTF-8".to_owned());
        }
        _ => {}
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| format!("isn't UTF-8 at byte {}: save it as UTF-8", error.utf8_error().valid_up_to()))?;
    Ok(text.strip_prefix(BOM).map(str::to_owned).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_whatever_wrote_it_and_what_is_none_is_named() {
        let wide = |text: &str, order: fn(u16) -> [u8; 2]| -> Vec<u8> {
            std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(order).collect()
        };
        for bytes in [
            b"lw_x \xc3\xa9\n".to_vec(),
            b"\xef\xbb\xbflw_x \xc3\xa9\n".to_vec(),
            wide("lw_x é\n", u16::to_le_bytes),
            wide("lw_x é\n", u16::to_be_bytes),
        ] {
            assert_eq!(decoded(bytes).unwrap(), "lw_x é\n");
        }
        for (bytes, says) in [
            (b"l\0w\0".to_vec(), "UTF-16 without"),
            (b"lw\xe9".to_vec(), "isn't UTF-8 at byte 2"),
            (b"\xff\xfel\0w".to_vec(), "broken UTF-16"),
        ] {
            assert!(decoded(bytes).unwrap_err().contains(says), "{says}");
        }
    }
}
