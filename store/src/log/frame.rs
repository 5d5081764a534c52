//! The framing of a batch: for each entry its length (`u32`, little-endian) and its postcard bytes.
//!
//! The length lets a reader step over entries without decoding them.

use lastword_facts::Entry;

const LENGTH_BYTES: usize = size_of::<u32>();

/// The reason why bytes aren't a batch of entries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The bytes end within an entry.
    #[error("it ends within an entry")]
    Short,
    /// An entry doesn't decode.
    #[error("an entry can't be decoded ({0})")]
    Entry(postcard::Error),
    /// An entry has bytes left over.
    #[error("an entry has {0} bytes too many")]
    Long(usize),
}

/// Appends the framed `entry` to `buffer`.
///
/// # Errors
/// The entry can't be encoded, or is longer than `u32::MAX` bytes; discard `buffer` then.
pub fn encode(buffer: &mut Vec<u8>, entry: &Entry) -> Result<(), postcard::Error> {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; LENGTH_BYTES]);
    // `to_extend` returns the buffer unless it fails, and no entry fails to encode.
    *buffer = postcard::to_extend(entry, std::mem::take(buffer))?;
    let Ok(length) = u32::try_from(buffer.len() - start - LENGTH_BYTES) else {
        buffer.truncate(start);
        return Err(postcard::Error::SerializeBufferFull);
    };
    buffer[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Splits the next entry's bytes off `batch`; `None` at its end.
///
/// # Errors
/// [`FrameError::Short`] if `batch` ends within an entry; it is empty then.
pub fn split<'a>(batch: &mut &'a [u8]) -> Option<Result<&'a [u8], FrameError>> {
    if batch.is_empty() {
        return None;
    }
    let parts = batch.split_first_chunk::<LENGTH_BYTES>().and_then(|(length, rest)| {
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        rest.split_at_checked(length)
    });
    let Some((entry, rest)) = parts else {
        *batch = &[];
        return Some(Err(FrameError::Short));
    };
    *batch = rest;
    Some(Ok(entry))
}

/// Decodes the bytes of one entry, without the length before it.
///
/// # Errors
/// The bytes aren't one entry.
pub fn decode(bytes: &[u8]) -> Result<Entry, FrameError> {
    match postcard::take_from_bytes(bytes) {
        Ok((entry, [])) => Ok(entry),
        Ok((_, rest)) => Err(FrameError::Long(rest.len())),
        Err(error) => Err(FrameError::Entry(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_batch_are_an_error_and_not_a_panic() {
        for bytes in [&[1_u8][..], &[5, 0, 0, 0, 1], &[0xff, 0xff, 0xff, 0xff]] {
            let mut batch = bytes;
            assert_eq!(split(&mut batch), Some(Err(FrameError::Short)));
            assert_eq!(split(&mut batch), None, "an error ends the batch");
        }
        assert!(decode(&[]).is_err());
        assert!(matches!(decode(&[0xff; 40]), Err(FrameError::Entry(_))));
    }
}
