//! Ascending positions, some in one row: the last, and how far each of those before it is from the next.

use lastword_proto::Seq;
use rusqlite::types::Type;

/// Most positions of a row, so that it stays within a page.
const POSITIONS: usize = 400;

/// Rows for these positions, which ascend; from the first of a row to its last there are fewer than `span`, at most 65,536.
pub(crate) fn rows(seqs: &[i64], span: i64) -> impl Iterator<Item = (i64, Option<Vec<u8>>)> {
    let mut rest = seqs;
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let near = rest.iter().take(POSITIONS).take_while(|seq| **seq - first < span).count();
        let (row, others) = rest.split_at(near);
        rest = others;
        packed(row)
    })
}

fn packed(seqs: &[i64]) -> Option<(i64, Option<Vec<u8>>)> {
    let last = *seqs.last()?;
    let back: Vec<u16> =
        seqs.windows(2).rev().map(|pair| u16::try_from(pair[1] - pair[0]).unwrap_or(u16::MAX)).collect();
    Some((last, (!back.is_empty()).then(|| postcard::to_allocvec(&back).unwrap_or_default())))
}

/// Adds the positions of a row to `seqs`, the last first.
pub(crate) fn unpack(last: i64, earlier: Option<&[u8]>, seqs: &mut Vec<Seq>) -> rusqlite::Result<()> {
    let damaged = |error: postcard::Error| rusqlite::Error::FromSqlConversionFailure(2, Type::Blob, Box::new(error));
    let back: Vec<u16> = earlier.map_or(Ok(Vec::new()), |earlier| postcard::from_bytes(earlier).map_err(damaged))?;
    let mut seq = last;
    seqs.push(Seq(seq.cast_unsigned()));
    for step in back {
        seq -= i64::from(step);
        seqs.push(Seq(seq.cast_unsigned()));
    }
    Ok(())
}
