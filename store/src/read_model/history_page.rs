//! Pages of a history: stretches of its facts that follow each other without a gap, cut by what a page counts.

use lastword_facts::ids::{AgentId, ConvId};
use lastword_facts::{MessageType, Seq};
use rusqlite::Connection;

use crate::log::ReadError;
use crate::read_model::query::{self, Cursor, IndexReader};

/// What a page counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageUnit {
    /// Messages.
    Messages,
    /// Requests.
    Requests,
    /// Facts.
    Facts,
}

/// Where in the history a page lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PagePlace {
    /// At its end.
    #[default]
    Newest,
    /// Right before this position.
    Before(Seq),
    /// Right behind this position.
    After(Seq),
    /// Right behind this position, and as full as a page gets: while the history grows, nothing leaves the page.
    Since(Seq),
    /// Around this position.
    At(Seq),
}

/// The page that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCut {
    /// What it counts.
    pub unit: PageUnit,
    /// Where it lies.
    pub place: PagePlace,
    /// The most units in it.
    pub units_max: usize,
    /// The most facts in it.
    pub facts_max: usize,
}

/// A page of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryPage {
    /// Its facts, oldest first.
    pub seqs: Vec<Seq>,
    /// The units before it.
    pub before: usize,
    /// The units in it.
    pub within: usize,
    /// The units of the whole history.
    pub total: usize,
    /// Whether there are facts before it.
    pub earlier: bool,
    /// Whether there are facts behind it.
    pub later: bool,
}

impl IndexReader {
    /// Returns a page of the history of these conversations. One of messages or requests begins where one of `starters`
    /// asks for something in `conv`, if that is near.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn history_page(
        &self,
        conv: ConvId,
        starters: &[AgentId],
        convs: &[ConvId],
        cut: PageCut,
    ) -> Result<HistoryPage, ReadError> {
        let (units, begins) = match cut.unit {
            PageUnit::Facts => {
                let all = Cursor { ascending: true, limit: usize::MAX, ..Cursor::default() };
                (self.history(convs, all)?, Vec::new())
            }
            PageUnit::Messages | PageUnit::Requests => self.with(|db| {
                let kind = if cut.unit == PageUnit::Requests { requests() } else { String::new() };
                let units = positions(db, convs, &kind)?;
                let begins = begins(db, conv, starters, &units, cut)?;
                Ok((units, begins))
            })?,
        };
        let window = window(&units, &begins, cut);
        let ascending = matches!(cut.place, PagePlace::After(_) | PagePlace::Since(_) | PagePlace::At(_));
        let cursor = Cursor { ascending, limit: cut.facts_max, ..window };
        let mut seqs = self.history(convs, cursor)?;
        if let PagePlace::At(seq) = cut.place
            && seqs.last().is_some_and(|last| *last < seq)
        {
            // So many facts stand before it that the page begins with it.
            seqs = self.history(convs, Cursor { after: before(seq), ..cursor })?;
        }
        if !ascending {
            seqs.reverse();
        }
        let (Some(first), Some(last)) = (seqs.first().copied(), seqs.last().copied()) else {
            return Ok(HistoryPage { total: units.len(), ..HistoryPage::default() });
        };
        let (from, to) = (units.partition_point(|unit| *unit < first), units.partition_point(|unit| *unit <= last));
        let any = |window: Cursor| Ok::<_, ReadError>(!self.history(convs, Cursor { limit: 1, ..window })?.is_empty());
        Ok(HistoryPage {
            before: from,
            within: to - from,
            total: units.len(),
            earlier: any(Cursor { before: Some(first), ..Cursor::default() })?,
            later: any(Cursor { after: Some(last), ascending: true, ..Cursor::default() })?,
            seqs,
        })
    }
}

/// Returns the position before this one; `None` before the first.
const fn before(seq: Seq) -> Option<Seq> {
    match seq.0.checked_sub(1) {
        Some(before) => Some(Seq(before)),
        None => None,
    }
}

/// Returns the stretch of the log that a page is cut from.
fn window(units: &[Seq], begins: &[Seq], cut: PageCut) -> Cursor {
    let (all, size) = (units.len(), cut.units_max.max(1));
    // The page begins right before a unit, so that what led to it stands on its page, and the first page has all before.
    let from = |unit: usize| if unit == 0 { None } else { units.get(unit).and_then(|seq| before(*seq)) };
    let up_to = |unit: usize| units.get(unit).copied();
    let unit_of = |begin: usize| units.binary_search(begins.get(begin)?).ok();
    let next_begin = |unit: usize| unit_of(begins.partition_point(|begin| Some(begin) < units.get(unit)));
    let last_begin =
        |unit: usize| unit_of(begins.partition_point(|begin| Some(begin) <= units.get(unit)).checked_sub(1)?);
    let back = |end: usize| {
        let start = end.saturating_sub(size);
        next_begin(start).filter(|near| start > 0 && *near < start + size / 2).unwrap_or(start)
    };
    match cut.place {
        PagePlace::Newest => Cursor { after: from(back(all)), ..Cursor::default() },
        PagePlace::Before(seq) => {
            let end = units.partition_point(|unit| *unit < seq);
            Cursor { after: from(back(end)), before: Some(seq), ..Cursor::default() }
        }
        PagePlace::After(seq) => {
            let start = units.partition_point(|unit| *unit <= seq);
            let end = start.saturating_add(size).min(all);
            let near = last_begin(end).filter(|near| end < all && *near > start + size / 2);
            let end = near.unwrap_or(end);
            Cursor { after: Some(seq), before: up_to(end), ..Cursor::default() }
        }
        PagePlace::Since(seq) => {
            let start = units.partition_point(|unit| *unit <= seq);
            Cursor { after: Some(seq), before: up_to(start.saturating_add(size)), ..Cursor::default() }
        }
        PagePlace::At(seq) => {
            let unit = units.partition_point(|unit| *unit <= seq).saturating_sub(1);
            let start = unit.saturating_sub(size / 4);
            let start = next_begin(start).filter(|near| start > 0 && *near <= unit).unwrap_or(start);
            // A page at the end is as full as any other.
            let start = start.min(back(all));
            Cursor { after: from(start), before: up_to(start.saturating_add(size)), ..Cursor::default() }
        }
    }
}

/// Returns the condition that a message is a request.
fn requests() -> String {
    format!(" AND kind = {}", MessageType::Request as u8)
}

/// Returns the positions at which one of `starters` asks for something in a conversation, oldest first, as far from the
/// page as its begin or end can be.
fn begins(
    db: &Connection,
    conv: ConvId,
    starters: &[AgentId],
    units: &[Seq],
    cut: PageCut,
) -> rusqlite::Result<Vec<Seq>> {
    let middle = match cut.place {
        PagePlace::Newest => units.len(),
        PagePlace::Before(seq) | PagePlace::After(seq) | PagePlace::Since(seq) | PagePlace::At(seq) => {
            units.partition_point(|unit| *unit <= seq)
        }
    };
    let first = units.get(middle.saturating_sub(2 * cut.units_max)).map_or(0, |seq| seq.0);
    let last = units.get(middle.saturating_add(2 * cut.units_max)).map_or(i64::MAX, |seq| seq.0.cast_signed());
    let kind = requests();
    let from = query::numbers(starters.iter().map(|agent| agent.0));
    positions(db, &[conv], &format!("{kind} AND from_id IN ({from}) AND seq BETWEEN {first} AND {last}"))
}

/// Returns the positions of the messages of these conversations that fulfil a condition, oldest first.
fn positions(db: &Connection, convs: &[ConvId], condition: &str) -> rusqlite::Result<Vec<Seq>> {
    let list = query::numbers(convs.iter().map(|conv| conv.0));
    let sql = format!("SELECT seq FROM messages WHERE conv IN ({list}){condition} ORDER BY seq");
    let mut statement = db.prepare(&sql)?;
    let rows = statement.query_map([], |row| row.get(0).map(|seq: i64| Seq(seq.cast_unsigned())))?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every tenth position is a message, every hundredth one a request of its own.
    fn cut(place: PagePlace) -> (Option<u64>, Option<u64>) {
        let units: Vec<Seq> = (1..=100).map(|n| Seq(10 * n)).collect();
        let begins: Vec<Seq> = (0..10).map(|n| Seq(100 * n + 10)).collect();
        let cut = PageCut { unit: PageUnit::Messages, place, units_max: 25, facts_max: 1_000 };
        let Cursor { after, before, .. } = window(&units, &begins, cut);
        (after.map(|seq| seq.0), before.map(|seq| seq.0))
    }

    #[test]
    fn a_page_begins_and_ends_where_a_request_of_its_own_does() {
        assert_eq!(cut(PagePlace::Newest), (Some(809), None));
        assert_eq!(cut(PagePlace::Before(Seq(810))), (Some(609), Some(810)));
        assert_eq!(cut(PagePlace::After(Seq(605))), (Some(605), Some(810)));
        assert_eq!(cut(PagePlace::At(Seq(430))), (Some(409), Some(660)));
        // Its end stays where it is when a request begins near it.
        assert_eq!(cut(PagePlace::Since(Seq(605))), (Some(605), Some(860)));
        assert_eq!(cut(PagePlace::Since(Seq(805))), (Some(805), None));
    }

    #[test]
    fn the_first_page_has_all_that_stands_before_it_and_the_last_all_behind() {
        assert_eq!(cut(PagePlace::Before(Seq(205))), (None, Some(205)));
        assert_eq!(cut(PagePlace::Before(Seq(5))), (None, Some(5)));
        assert_eq!(cut(PagePlace::After(Seq(809))), (Some(809), None));
        assert_eq!(cut(PagePlace::After(Seq(5_000))), (Some(5_000), None));
        assert_eq!(cut(PagePlace::At(Seq(3))), (None, Some(260)));
        assert_eq!(cut(PagePlace::At(Seq(5_000))), (Some(809), None));
    }
}
