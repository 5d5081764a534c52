//! `POST /v1/backup`: a backup of the log, as a stream of bytes.

use futures_util::{Stream, StreamExt as _};
use lastword_wire::calls::BackUp;

use crate::error::ClientError;
use crate::http::Client;

impl Client {
    /// Makes a backup of the log and returns its bytes as they come. Only an owner may.
    ///
    /// # Errors
    /// The server refuses or does not answer; within the stream, the connection broke.
    pub async fn backup(
        &self,
    ) -> Result<impl Stream<Item = Result<Vec<u8>, ClientError>> + Unpin + use<>, ClientError> {
        let response = self.ask::<BackUp>("").response().await?;
        let client = self.clone();
        let whole = move |chunk: reqwest::Result<_>| chunk.map_err(|error| client.unreachable(&error));
        Ok(response.bytes_stream().map(|chunk| chunk.map(|bytes| bytes.to_vec())).map(whole))
    }
}
