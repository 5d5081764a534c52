//! The statements that a command gives to the program of a database.

use super::Input;

/// Programs that run statements of SQL from their arguments or their input.
const PROGRAMS: [&str; 14] = [
    "bq",
    "clickhouse",
    "clickhouse-client",
    "cockroach",
    "cqlsh",
    "duckdb",
    "mariadb",
    "mysql",
    "psql",
    "snowsql",
    "sqlcmd",
    "sqlite3",
    "sqlplus",
    "usql",
];

pub(crate) fn is_database(name: &str) -> bool {
    PROGRAMS.contains(&name.rsplit('/').next().unwrap_or_default())
}

/// Returns what may be statements of these words, if they begin with the program of a database.
pub(super) fn statements(words: &[String], input: Input<'_>) -> Vec<Box<str>> {
    let Some((_, rest)) = words.split_first().filter(|(name, _)| is_database(name)) else { return Vec::new() };
    let value = |word: &'_ String| match word.strip_prefix("--") {
        Some(long) => long.split_once('=').map_or_else(String::new, |(_, value)| value.to_owned()),
        // The flag may stand before it without a space.
        None if word.starts_with('-') => word.chars().skip(2).collect(),
        None => word.clone(),
    };
    let read = if let Input::Text(text) = input { Some(text.to_owned()) } else { None };
    // One word alone is a name.
    let several = |text: &String| text.trim().contains(char::is_whitespace);
    rest.iter().map(value).chain(read).filter(several).map(Into::into).collect()
}
