//! Ascending numbers packed into rows: the last one, and the distances between the others.

use lastword_facts::Seq;
use rusqlite::types::Type;

/// Positions per row, so that a row fits a page.
const POSITIONS: usize = 400;

/// Packs ascending positions into rows, each spanning fewer than `span` positions (at most 65,536).
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

/// Appends the positions of a row to `seqs`, the last one first.
pub(crate) fn unpack(last: i64, earlier: Option<&[u8]>, seqs: &mut Vec<Seq>) -> rusqlite::Result<()> {
    let back: Vec<u16> = earlier.map_or(Ok(Vec::new()), postcard::from_bytes).map_err(damaged)?;
    let mut seq = last;
    seqs.push(Seq(seq.cast_unsigned()));
    for step in back {
        seq -= i64::from(step);
        seqs.push(Seq(seq.cast_unsigned()));
    }
    Ok(())
}

/// Ids per row of [`numbers`].
pub(crate) const NUMBERS: usize = 200;

/// Packs ascending ids and their conversations into one row.
pub(crate) fn numbers(numbers: &[(u64, i64)]) -> Option<(i64, Vec<u8>)> {
    let (last, _) = *numbers.last()?;
    let mut next = last;
    let back: Vec<(u64, i64)> =
        numbers.iter().rev().map(|(id, conv)| (std::mem::replace(&mut next, *id) - id, *conv)).collect();
    Some((last.cast_signed(), postcard::to_allocvec(&back).unwrap_or_default()))
}

/// Returns the conversation of `id` in a row of [`numbers`].
pub(crate) fn conversation(last: i64, convs: &[u8], id: u64) -> rusqlite::Result<Option<i64>> {
    let mut number = last.cast_unsigned();
    let back: Vec<(u64, i64)> = postcard::from_bytes(convs).map_err(damaged)?;
    Ok(back.into_iter().find_map(|(step, conv)| {
        number = number.saturating_sub(step);
        (number == id).then_some(conv)
    }))
}

fn damaged(error: postcard::Error) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(2, Type::Blob, Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_a_row_is_found_and_no_other() {
        let given = [(7, 3), (8, 3), (20, 1), (1 << 40, 900)];
        let (last, convs) = numbers(&given).unwrap();
        assert_eq!(last, 1 << 40);
        for (id, conv) in given {
            assert_eq!(conversation(last, &convs, id).unwrap(), Some(conv));
        }
        for id in [0, 6, 9, 21, (1 << 40) + 1] {
            assert_eq!(conversation(last, &convs, id).unwrap(), None);
        }
        assert!(conversation(last, &convs[..3], 7).is_err());
    }
}
