//! The known word that a mistyped one probably means.

/// The longest word that is compared, in bytes.
const WORD_BYTES_MAX: usize = 64;

/// The shortest beginning of a word that names it, in bytes.
const BEGINNING_BYTES_MIN: usize = 3;

/// Returns the known word that is nearest, if at most a third of its letters differ or the word begins it.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    let plain = |word: &str| word.to_ascii_lowercase().replace(['-', ' '], "_");
    let wanted = plain(word);
    let away = |known: &str| {
        let known = plain(known);
        let begins = wanted.len() >= BEGINNING_BYTES_MIN && known.starts_with(&wanted);
        if begins { usize::from(known != wanted) } else { distance(wanted.as_bytes(), known.as_bytes()) }
    };
    let all = known.into_iter().map(|known| (away(known), known));
    all.min_by_key(|(distance, _)| *distance)
        .filter(|(distance, near)| distance * 3 <= near.len())
        .map(|(_, near)| near)
}

/// Adds to an error of serde, which lists what it expected, the member or word that was probably meant.
#[must_use]
pub fn with_nearest(error: String) -> String {
    let is_list = error.starts_with("unknown field `") || error.starts_with("unknown variant `");
    let words: Vec<&str> = if is_list { error.split('`').skip(1).step_by(2).collect() } else { Vec::new() };
    let near = words.split_first().and_then(|(word, known)| nearest(word, known.iter().copied()));
    near.map(|near| format!("{error}; did you mean `{near}`?")).unwrap_or(error)
}

/// Returns how many letters have to be added, removed, replaced or exchanged with their neighbour.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut rows: Vec<Vec<usize>> = Vec::with_capacity(a.len() + 1);
    rows.push((0..=b.len()).collect());
    for (i, x) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(x != y);
            let mut least = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i - 1] == *y && *x == b[j - 1] {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_word_is_found_and_a_far_one_is_not() {
        let known = ["deadline_ms", "timeout_ms", "to", "priority", "ref"];
        for (word, near) in [
            ("deadlin_ms", Some("deadline_ms")),
            ("timeout-ms", Some("timeout_ms")),
            ("Ref", Some("ref")),
            ("priroity", Some("priority")),
            ("deadline", Some("deadline_ms")),
            ("cc", None),
            ("thread", None),
        ] {
            assert_eq!(nearest(word, known), near, "{word}");
        }
        let error = "unknown field `tunr`, expected one of `wait_ms`, `turn`";
        assert_eq!(with_nearest(error.into()), format!("{error}; did you mean `turn`?"));
        assert_eq!(with_nearest("missing field `to`".into()), "missing field `to`");
    }
}
