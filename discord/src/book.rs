//! What the bridge has done, in a file of its own: so that nothing is lost or done twice over restarts.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lastword_client::ClientError;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::inbound::{Act, Thread, TurnPlace};

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
-- The last post of a channel or thread that was dealt with.
CREATE TABLE IF NOT EXISTS handled (channel INTEGER PRIMARY KEY, post INTEGER NOT NULL) STRICT;
-- The id from which on what is posted in a channel's threads is for the bridge, and up to when threads that were put away
-- have been looked through.
CREATE TABLE IF NOT EXISTS began (channel INTEGER PRIMARY KEY, post INTEGER NOT NULL, put_away TEXT NOT NULL) STRICT;
-- What a post was found to mean, before it was done: a second try does the same.
CREATE TABLE IF NOT EXISTS decided (post INTEGER PRIMARY KEY, acts TEXT NOT NULL) STRICT;
-- Where the log ended before it was done.
CREATE TABLE IF NOT EXISTS heads (post INTEGER PRIMARY KEY, seq INTEGER NOT NULL) STRICT;
-- Posts that were too old to ask for anything, of which the humans there are not told yet.
CREATE TABLE IF NOT EXISTS late (post INTEGER PRIMARY KEY, channel INTEGER NOT NULL) STRICT;
-- The threads, and whether one is inside of a channel of ours.
CREATE TABLE IF NOT EXISTS channels (id INTEGER PRIMARY KEY, parent INTEGER) STRICT;
CREATE TABLE IF NOT EXISTS threads (
  ref TEXT PRIMARY KEY,
  channel INTEGER NOT NULL,
  -- The post from which the thread is started.
  origin INTEGER NOT NULL,
  thread INTEGER,
  agent TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS threads_by_thread ON threads (thread);
-- Conversations that are shown in the thread of the one from which they came, under REFs that don't tell.
CREATE TABLE IF NOT EXISTS kin (ref TEXT PRIMARY KEY, root TEXT NOT NULL) STRICT, WITHOUT ROWID;
-- What was posted, or may have been: then it has no id yet.
CREATE TABLE IF NOT EXISTS posts (
  nonce TEXT PRIMARY KEY,
  channel INTEGER NOT NULL,
  floor INTEGER NOT NULL,
  id INTEGER,
  content TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS posts_by_id ON posts (id);
CREATE TABLE IF NOT EXISTS hints (about TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
-- Requests that a human's own post put before a foreign bot, and where.
CREATE TABLE IF NOT EXISTS asked (request TEXT PRIMARY KEY, channel INTEGER NOT NULL) STRICT, WITHOUT ROWID;
-- What a foreign bot answered to a request before its turn.
CREATE TABLE IF NOT EXISTS early (request TEXT PRIMARY KEY, answer TEXT NOT NULL) STRICT, WITHOUT ROWID;
-- Turns that were shown to a foreign bot, where, and behind which id it answers.
CREATE TABLE IF NOT EXISTS given (agent TEXT NOT NULL, thread INTEGER NOT NULL, turn TEXT NOT NULL, floor INTEGER NOT NULL,
  PRIMARY KEY (agent, thread)) STRICT, WITHOUT ROWID;";

/// Posts whose words are remembered, for an echo that comes without its nonce.
const POSTS_KEPT: u32 = 20_000;

/// The file.
#[derive(Clone, Debug)]
pub(crate) struct BridgeStore {
    db: Arc<Mutex<Connection>>,
    /// What the nonces of this file begin with.
    mark: String,
}

/// Where a conversation is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) reference: String,
    pub(crate) channel: u64,
    pub(crate) origin: u64,
    pub(crate) thread: Option<u64>,
}

/// A post that may have been sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tried {
    pub(crate) floor: u64,
    pub(crate) id: Option<u64>,
}

pub(super) type Kept<T> = rusqlite::Result<T>;

impl BridgeStore {
    pub(crate) fn open(path: &Path) -> Kept<Self> {
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
        // What agents say is in it. Where the file can't be made, opening it says why.
        if let Some(folder) = path.parent() {
            let _made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).is_ok();
        }
        let _made = std::fs::File::options().append(true).create(true).mode(0o600).open(path).is_ok();
        Self::over(Connection::open(path)?)
    }

    #[cfg(test)]
    pub(crate) fn in_memory() -> Kept<Self> {
        Self::over(Connection::open_in_memory()?)
    }

    fn over(db: Connection) -> Kept<Self> {
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.execute_batch(SCHEMA)?;
        let mark = {
            use std::hash::{BuildHasher as _, Hasher as _};
            // Another file, another mark: Discord takes the same nonce for the same post.
            let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
            let fresh = format!("lw{:05x}", random & 0xf_ffff);
            db.execute("INSERT OR IGNORE INTO meta VALUES ('mark', ?1)", [fresh])?;
            db.query_row("SELECT value FROM meta WHERE name = 'mark'", [], |row| row.get(0))?
        };
        Ok(Self { db: Arc::new(Mutex::new(db)), mark })
    }

    pub(super) fn db(&self) -> MutexGuard<'_, Connection> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The nonce of a part of what is posted for the event at this position.
    pub(crate) fn nonce(&self, seq: &str, part: usize) -> String {
        format!("{}-{seq}.{part}", self.mark)
    }

    /// Whether a nonce is of this file.
    pub(crate) fn is_own(&self, nonce: &str) -> bool {
        nonce.strip_prefix(&self.mark).is_some_and(|rest| rest.starts_with('-'))
    }

    /// The position up to which events were shown.
    pub(crate) fn cursor(&self) -> Kept<Option<u64>> {
        let text: Option<String> =
            self.db().query_row("SELECT value FROM meta WHERE name = 'cursor'", [], |row| row.get(0)).optional()?;
        Ok(text.and_then(|text| text.parse().ok()))
    }

    pub(crate) fn set_cursor(&self, seq: u64) -> Kept<()> {
        let db = self.db();
        let mut set = db.prepare_cached("INSERT OR REPLACE INTO meta VALUES ('cursor', ?1)")?;
        set.execute([seq.to_string()]).map(|_| ())
    }

    /// The last post of a channel that was dealt with.
    pub(crate) fn handled(&self, channel: u64) -> Kept<Option<u64>> {
        let db = self.db();
        let mut look = db.prepare_cached("SELECT post FROM handled WHERE channel = ?1")?;
        look.query_row([channel.cast_signed()], id).optional()
    }

    /// Channels and threads of which posts were dealt with, the newest first.
    pub(crate) fn followed(&self) -> Kept<Vec<u64>> {
        let db = self.db();
        let mut all = db.prepare_cached("SELECT channel FROM handled ORDER BY post DESC")?;
        all.query_map([], id)?.collect()
    }

    /// Where the bridge began in a channel, and up to when threads that were put away have been looked through.
    pub(crate) fn began(&self, channel: u64) -> Kept<Option<(u64, String)>> {
        let db = self.db();
        let mut look = db.prepare_cached("SELECT post, put_away FROM began WHERE channel = ?1")?;
        look.query_row([channel.cast_signed()], |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?)))
            .optional()
    }

    /// The bridge begins in a channel; the first word on it stays.
    pub(crate) fn begin_in(&self, channel: u64, post: u64, put_away: &str) -> Kept<()> {
        let db = self.db();
        let mut add = db.prepare_cached("INSERT OR IGNORE INTO began VALUES (?1, ?2, ?3)")?;
        add.execute(params![channel.cast_signed(), post.cast_signed(), put_away]).map(|_| ())
    }

    /// The threads of a channel that were put away up to this moment have been looked through.
    pub(crate) fn looked_through(&self, channel: u64, put_away: &str) -> Kept<()> {
        let db = self.db();
        let mut set = db.prepare_cached("UPDATE began SET put_away = max(put_away, ?2) WHERE channel = ?1")?;
        set.execute(params![channel.cast_signed(), put_away]).map(|_| ())
    }

    /// The posts of a channel were dealt with up to this one, and what those from `first` on meant is done.
    pub(crate) fn handle(&self, channel: u64, first: u64, post: u64) -> Kept<()> {
        let mut db = self.db();
        let change = db.transaction()?;
        change.execute(
            "INSERT INTO handled VALUES (?1, ?2) ON CONFLICT DO UPDATE SET post = max(post, ?2)",
            [channel.cast_signed(), post.cast_signed()],
        )?;
        // Ids go up over all channels: what was noted for another one stays.
        change.execute("DELETE FROM decided WHERE post = ?1", [first.cast_signed()])?;
        change.execute("DELETE FROM heads WHERE post = ?1", [first.cast_signed()])?;
        change.commit()
    }

    /// What a post was found to mean by an earlier try, as much of it as is left, and where the log ended before.
    pub(crate) fn decided(&self, post: u64) -> Kept<Option<(Vec<Act>, u64)>> {
        let db = self.db();
        let mut look = db.prepare_cached(
            "SELECT acts, coalesce((SELECT seq FROM heads WHERE post = ?1), 0) FROM decided WHERE post = ?1",
        )?;
        let found = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?.cast_unsigned()));
        let found = look.query_row([post.cast_signed()], found).optional()?;
        Ok(found.and_then(|(text, head)| Some((serde_json::from_str(&text).ok()?, head))))
    }

    pub(crate) fn decide(&self, post: u64, acts: &VecDeque<Act>, head: u64) -> Kept<()> {
        let text = serde_json::to_string(acts).unwrap_or_default();
        let mut db = self.db();
        let change = db.transaction()?;
        change
            .prepare_cached("INSERT OR REPLACE INTO decided VALUES (?1, ?2)")?
            .execute(params![post.cast_signed(), text])?;
        change
            .prepare_cached("INSERT OR REPLACE INTO heads VALUES (?1, ?2)")?
            .execute(params![post.cast_signed(), head.cast_signed()])?;
        change.commit()
    }

    /// A post was too old to ask for anything.
    pub(crate) fn miss(&self, post: u64, channel: u64) -> Kept<()> {
        let db = self.db();
        let mut add = db.prepare_cached("INSERT OR IGNORE INTO late VALUES (?1, ?2)")?;
        add.execute(params![post.cast_signed(), channel.cast_signed()]).map(|_| ())
    }

    /// Where humans are to be told of posts that were too old: the channel, how many, and the last one.
    pub(crate) fn missed(&self) -> Kept<Vec<(u64, u64, u64)>> {
        let db = self.db();
        let mut all = db.prepare_cached("SELECT channel, count(*), max(post) FROM late GROUP BY channel")?;
        let number = |row: &rusqlite::Row<'_>, at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
        all.query_map([], |row| Ok((number(row, 0)?, number(row, 1)?, number(row, 2)?)))?.collect()
    }

    /// They were told of those up to this one.
    pub(crate) fn told(&self, channel: u64, last: u64) -> Kept<()> {
        let db = self.db();
        let mut drop = db.prepare_cached("DELETE FROM late WHERE channel = ?1 AND post <= ?2")?;
        drop.execute(params![channel.cast_signed(), last.cast_signed()]).map(|_| ())
    }

    /// The channel in which a thread is, if that is known: `Some(None)` for what is no thread.
    pub(crate) fn parent(&self, channel: u64) -> Kept<Option<Option<u64>>> {
        let db = self.db();
        let mut look = db.prepare_cached("SELECT parent FROM channels WHERE id = ?1")?;
        let parent = |row: &rusqlite::Row<'_>| Ok(row.get::<_, Option<i64>>(0)?.map(i64::cast_unsigned));
        look.query_row([channel.cast_signed()], parent).optional()
    }

    pub(crate) fn set_parent(&self, channel: u64, parent: Option<u64>) -> Kept<()> {
        let db = self.db();
        let mut set = db.prepare_cached("INSERT OR REPLACE INTO channels VALUES (?1, ?2)")?;
        set.execute(params![channel.cast_signed(), parent.map(u64::cast_signed)]).map(|_| ())
    }

    /// Notes where a conversation is shown; the first word on it stays.
    pub(crate) fn place(&self, place: &Place) -> Kept<()> {
        let db = self.db();
        let mut add = db.prepare_cached("INSERT OR IGNORE INTO threads VALUES (?1, ?2, ?3, ?4, NULL)")?;
        let thread = place.thread.map(u64::cast_signed);
        add.execute(params![place.reference, place.channel.cast_signed(), place.origin.cast_signed(), thread])
            .map(|_| ())
    }

    /// A conversation is shown where another one is.
    pub(crate) fn join(&self, reference: &str, root: &str) -> Kept<()> {
        self.db().prepare_cached("INSERT OR IGNORE INTO kin VALUES (?1, ?2)")?.execute([reference, root]).map(|_| ())
    }

    /// Takes back what was noted of a conversation that did not come to be.
    pub(crate) fn unplace(&self, reference: &str, origin: u64) -> Kept<()> {
        let db = self.db();
        let mut drop = db.prepare_cached("DELETE FROM threads WHERE ref = ?1 AND origin = ?2")?;
        drop.execute(params![reference, origin.cast_signed()]).map(|_| ())
    }

    /// A human's own post puts a request before a foreign bot.
    pub(crate) fn ask(&self, request: &str, channel: u64) -> Kept<()> {
        let db = self.db();
        let mut add = db.prepare_cached("INSERT OR REPLACE INTO asked VALUES (?1, ?2)")?;
        add.execute(params![request, channel.cast_signed()]).map(|_| ())
    }

    pub(crate) fn asked_in(&self, request: &str) -> Kept<Option<u64>> {
        let db = self.db();
        let mut look = db.prepare_cached("SELECT channel FROM asked WHERE request = ?1")?;
        look.query_row([request], id).optional()
    }

    /// Where a conversation is shown: in a place of its own, or in that of the one from which it came.
    pub(crate) fn placed(&self, reference: &str) -> Kept<Option<Place>> {
        let db = self.db();
        let mut look = db.prepare_cached(
            "SELECT ref, channel, origin, thread FROM threads
             WHERE ref = ?1 OR ref = (SELECT root FROM kin WHERE ref = ?1) ORDER BY ref = ?1 DESC LIMIT 1",
        )?;
        let place = |row: &rusqlite::Row<'_>| {
            Ok(Place {
                reference: row.get(0)?,
                channel: row.get::<_, i64>(1)?.cast_unsigned(),
                origin: row.get::<_, i64>(2)?.cast_unsigned(),
                thread: row.get::<_, Option<i64>>(3)?.map(i64::cast_unsigned),
            })
        };
        look.query_row([reference], place).optional()
    }

    pub(crate) fn set_thread(&self, reference: &str, thread: u64) -> Kept<()> {
        let db = self.db();
        let mut set = db.prepare_cached("UPDATE threads SET thread = ?2 WHERE ref = ?1")?;
        set.execute(params![reference, thread.cast_signed()]).map(|_| ())
    }

    /// Whom a human asked in a conversation last.
    pub(crate) fn involve(&self, reference: &str, agent: &str) -> Kept<()> {
        let db = self.db();
        db.prepare_cached("UPDATE threads SET agent = ?2 WHERE ref = ?1")?.execute([reference, agent]).map(|_| ())
    }

    /// The conversation that a thread shows: the first, where it shows several.
    pub(crate) fn thread(&self, thread: u64) -> Kept<Option<Thread>> {
        let db = self.db();
        let mut look =
            db.prepare_cached("SELECT ref, agent FROM threads WHERE thread = ?1 ORDER BY origin, length(ref) LIMIT 1")?;
        let found = |row: &rusqlite::Row<'_>| Ok(Thread { reference: row.get(0)?, agent: row.get(1)? });
        look.query_row([thread.cast_signed()], found).optional()
    }

    /// A post that was tried before.
    pub(crate) fn tried(&self, nonce: &str) -> Kept<Option<Tried>> {
        let db = self.db();
        let mut look = db.prepare_cached("SELECT floor, id FROM posts WHERE nonce = ?1")?;
        let tried = |row: &rusqlite::Row<'_>| {
            Ok(Tried {
                floor: row.get::<_, i64>(0)?.cast_unsigned(),
                id: row.get::<_, Option<i64>>(1)?.map(i64::cast_unsigned),
            })
        };
        look.query_row([nonce], tried).optional()
    }

    /// Notes that a post is being tried: if it was posted, then behind everything that is known there now.
    pub(crate) fn begin(&self, nonce: &str, channel: u64, content: &str) -> Kept<()> {
        let db = self.db();
        let floor: i64 = db.query_row(
            "SELECT max(coalesce((SELECT max(id) FROM posts WHERE channel = ?1), 0),
                        coalesce((SELECT post FROM handled WHERE channel = ?1), 0))",
            [channel.cast_signed()],
            |row| row.get(0),
        )?;
        db.prepare_cached("INSERT OR IGNORE INTO posts VALUES (?1, ?2, ?3, NULL, ?4)")?
            .execute(params![nonce, channel.cast_signed(), floor, content])
            .map(|_| ())
    }

    /// It was posted, as this post. What was posted long ago is forgotten.
    pub(crate) fn sent(&self, nonce: &str, id: u64) -> Kept<()> {
        let db = self.db();
        db.prepare_cached("UPDATE posts SET id = ?2 WHERE nonce = ?1")?.execute(params![nonce, id.cast_signed()])?;
        if id & 0xff == 0 {
            let old = "DELETE FROM posts WHERE id < (SELECT id FROM posts WHERE id NOT NULL ORDER BY id DESC
                       LIMIT 1 OFFSET ?1)";
            db.execute(old, [POSTS_KEPT])?;
        }
        Ok(())
    }

    /// Whether a post is one that we made: by its id, or by its words where its id is not known yet.
    pub(crate) fn is_echo(&self, channel: u64, post: u64, content: &str) -> Kept<bool> {
        let db = self.db();
        let mut look = db.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM posts WHERE id = ?2)
                 OR EXISTS (SELECT 1 FROM posts WHERE channel = ?1 AND id IS NULL AND floor < ?2 AND content = ?3)",
        )?;
        look.query_row(params![channel.cast_signed(), post.cast_signed(), content], |row| row.get(0))
    }

    /// Whether a post is that of another nonce.
    pub(crate) fn is_known(&self, post: u64) -> Kept<bool> {
        let db = self.db();
        let mut look = db.prepare_cached("SELECT EXISTS (SELECT 1 FROM posts WHERE id = ?1)")?;
        look.query_row([post.cast_signed()], |row| row.get(0))
    }

    /// Whether a hint was given already.
    pub(crate) fn hinted(&self, about: &str) -> Kept<bool> {
        let db = self.db();
        db.prepare_cached("SELECT EXISTS (SELECT 1 FROM hints WHERE about = ?1)")?.query_row([about], |row| row.get(0))
    }

    pub(crate) fn hint(&self, about: &str) -> Kept<()> {
        self.db().prepare_cached("INSERT OR IGNORE INTO hints VALUES (?1)")?.execute([about]).map(|_| ())
    }

    /// A turn is shown to a foreign bot in a thread: what it posted there up to `floor` is no answer to it.
    pub(crate) fn show_turn(&self, agent: &str, place: TurnPlace, turn: &str, floor: u64) -> Kept<()> {
        let db = self.db();
        // Turns are numbered as they open: when the log is read again, an old one does not come back.
        let mut set = db.prepare_cached(
            "INSERT INTO given VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET turn = ?3, floor = ?4
             WHERE CAST(ltrim(turn, 'turn-') AS INTEGER) < CAST(ltrim(?3, 'turn-') AS INTEGER)",
        )?;
        set.execute(params![agent, place.id().cast_signed(), turn, floor.cast_signed()]).map(|_| ())
    }

    /// A turn is answered behind this post at the latest.
    pub(crate) fn answers_behind(&self, turn: &str, post: u64) -> Kept<()> {
        let db = self.db();
        let mut set = db.prepare_cached("UPDATE given SET floor = min(floor, ?2) WHERE turn = ?1")?;
        set.execute(params![turn, post.cast_signed()]).map(|_| ())
    }

    /// The turn that a post of a foreign bot may answer: one that was shown there before.
    pub(crate) fn turn(&self, agent: &str, place: TurnPlace, post: u64) -> Kept<Option<String>> {
        let db = self.db();
        let mut look = db.prepare_cached("SELECT turn FROM given WHERE agent = ?1 AND thread = ?2 AND floor < ?3")?;
        look.query_row(params![agent, place.id().cast_signed(), post.cast_signed()], |row| row.get(0)).optional()
    }

    pub(crate) fn end_turn(&self, turn: &str) -> Kept<()> {
        self.db().prepare_cached("DELETE FROM given WHERE turn = ?1")?.execute([turn]).map(|_| ())
    }
}

/// The bridge's own file is as needed as the broker: without it nothing is shown, and nothing is heard.
#[expect(clippy::needless_pass_by_value, reason = "the form in which an error is mapped")]
pub(crate) fn lost(error: rusqlite::Error) -> ClientError {
    ClientError::Unreachable { url: "the bridge's own file".to_owned(), reason: error.to_string() }
}

fn id(row: &rusqlite::Row<'_>) -> rusqlite::Result<u64> {
    row.get::<_, i64>(0).map(i64::cast_unsigned)
}

#[cfg(test)]
mod tests {
    use super::super::inbound::turn_place;
    use super::*;

    #[test]
    fn a_post_that_may_have_been_sent_is_an_echo_by_its_words_and_later_by_its_id() {
        let book = BridgeStore::in_memory().unwrap();
        let nonce = book.nonce("12", 0);
        assert!(book.is_own(&nonce) && !book.is_own("other-12.0") && nonce.len() <= 25);
        book.handle(5, 100, 100).unwrap();
        book.begin(&nonce, 5, "Look.").unwrap();
        assert_eq!(book.tried(&nonce).unwrap(), Some(Tried { floor: 100, id: None }));
        assert!(book.is_echo(5, 101, "Look.").unwrap());
        assert!(!book.is_echo(5, 99, "Look.").unwrap(), "it was there before");
        assert!(!book.is_echo(6, 101, "Look.").unwrap(), "another channel");
        book.sent(&nonce, 101).unwrap();
        assert!(book.is_echo(5, 101, "whatever").unwrap() && !book.is_echo(5, 102, "Look.").unwrap());
        assert_eq!(book.tried(&nonce).unwrap(), Some(Tried { floor: 100, id: Some(101) }));
    }

    #[test]
    fn a_thread_shows_the_conversation_that_began_it() {
        let book = BridgeStore::in_memory().unwrap();
        let place = Place { reference: "D-1".into(), channel: 1, origin: 7, thread: None };
        book.place(&place).unwrap();
        assert_eq!(book.placed("D-1").unwrap(), Some(place));
        book.set_thread("D-1", 7).unwrap();
        book.involve("D-1", "kilo").unwrap();
        book.place(&Place { reference: "X-1".into(), channel: 1, origin: 9, thread: Some(7) }).unwrap();
        let thread = Thread { reference: "D-1".into(), agent: Some("kilo".into()) };
        assert_eq!(book.thread(7).unwrap(), Some(thread.clone()));
        assert_eq!(book.thread(8).unwrap(), None);
        book.join("Y-1", "D-1").unwrap();
        assert_eq!(book.placed("Y-1").unwrap(), book.placed("D-1").unwrap());
        assert_eq!(book.thread(7).unwrap(), Some(thread), "it is about the first, whatever else it shows");
    }

    #[test]
    fn an_old_turn_does_not_come_back_when_the_log_is_read_again() {
        let (book, place) = (BridgeStore::in_memory().unwrap(), turn_place(5));
        for turn in ["turn-9", "turn-10", "turn-9"] {
            book.show_turn("hive", place, turn, 7).unwrap();
        }
        assert_eq!(book.turn("hive", place, 8).unwrap().as_deref(), Some("turn-10"));
        assert_eq!(book.turn("hive", place, 7).unwrap(), None, "it was posted before");
        book.end_turn("turn-9").unwrap();
        assert_eq!(book.turn("hive", place, 8).unwrap().as_deref(), Some("turn-10"));
        book.end_turn("turn-10").unwrap();
        assert_eq!(book.turn("hive", place, 8).unwrap(), None);
    }

    #[test]
    fn the_file_is_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("lastword-book-{}.sqlite", std::process::id()));
        let book = BridgeStore::open(&path).unwrap();
        book.set_cursor(7).unwrap();
        let modes = ["", "-wal"].map(|end| {
            let file = format!("{}{end}", path.display());
            std::fs::metadata(file).map(|file| file.permissions().mode() & 0o777)
        });
        drop(book);
        let reopened = BridgeStore::open(&path).and_then(|book| book.cursor());
        for end in ["", "-wal", "-shm"] {
            // The last two may be gone by themselves.
            let _gone = std::fs::remove_file(format!("{}{end}", path.display())).is_ok();
        }
        assert!(modes.into_iter().all(|mode| mode.unwrap() == 0o600));
        assert_eq!(reopened.unwrap(), Some(7));
    }

    #[test]
    fn what_was_dealt_with_never_goes_back() {
        let book = BridgeStore::in_memory().unwrap();
        book.decide(9, &VecDeque::new(), 30).unwrap();
        assert_eq!(book.decided(9).unwrap(), Some((Vec::new(), 30)));
        book.handle(2, 12, 12).unwrap();
        assert_eq!(book.decided(9).unwrap(), Some((Vec::new(), 30)), "another channel is ahead");
        book.handle(1, 9, 9).unwrap();
        book.handle(1, 4, 4).unwrap();
        assert_eq!((book.handled(1).unwrap(), book.decided(9).unwrap()), (Some(9), None));
    }
}
