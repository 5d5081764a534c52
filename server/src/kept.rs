//! Small files of a workspace as JSON, each with the version of its form.

use std::fs;
use std::io;

use lastword_broker::files::Files;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    content: T,
}

/// Reads a file; the default where there is none.
///
/// # Errors
/// It can't be read, or is of another version: that is no reason to go on without.
pub(crate) fn read<T: DeserializeOwned + Default>(files: &Files, name: &str, version: u32) -> io::Result<T> {
    let file: Versioned<T> = match fs::read(files.path(name)) {
        Ok(bytes) => serde_json::from_slice(&bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
        Err(error) => return Err(error),
    };
    if file.version != version {
        return Err(io::Error::other(format!("{name} is of another version ({})", file.version)));
    }
    Ok(file.content)
}

/// Writes a file, completely or not at all.
pub(crate) async fn write<T: Serialize>(
    files: &Files,
    name: &'static str,
    version: u32,
    content: &T,
) -> Result<(), ApiError> {
    let failed = |error: &dyn std::fmt::Display| ApiError::internal(&format!("{name} can't be written: {error}"));
    let bytes = serde_json::to_vec(&Versioned { version, content }).map_err(|error| failed(&error))?;
    let files = files.clone();
    let written = tokio::task::spawn_blocking(move || files.write(name, &bytes)).await;
    written.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}
