//! The bridge's own file: what it has done, so that nothing is lost or done twice across restarts.

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
-- Posts of humans that a pause or stop refused, to be passed on after a resume.
CREATE TABLE IF NOT EXISTS kept (
  post INTEGER PRIMARY KEY, channel INTEGER NOT NULL, act TEXT NOT NULL, tries INTEGER NOT NULL
) STRICT;
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
-- The humans of the workspace that were made for people of Discord.
CREATE TABLE IF NOT EXISTS people (user INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;
-- Posts with the sign of a queued request, and the agent whose bot set it.
CREATE TABLE IF NOT EXISTS queued (post INTEGER PRIMARY KEY, agent TEXT NOT NULL) STRICT;
-- When each agent was last at work.
CREATE TABLE IF NOT EXISTS seen (agent TEXT PRIMARY KEY, at_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;
-- The Discord users of the bots that the bridge posts with, for when one can't be asked.
CREATE TABLE IF NOT EXISTS bots (agent TEXT PRIMARY KEY, user INTEGER NOT NULL) STRICT, WITHOUT ROWID;
-- Requests that a human's own post put before a foreign bot, and where.
CREATE TABLE IF NOT EXISTS asked (request TEXT PRIMARY KEY, channel INTEGER NOT NULL) STRICT, WITHOUT ROWID;
-- What a foreign bot answered to a request before its turn.
CREATE TABLE IF NOT EXISTS early (request TEXT PRIMARY KEY, answer TEXT NOT NULL) STRICT, WITHOUT ROWID;
-- Turns that were shown to a foreign bot, where, and behind which id it answers.
CREATE TABLE IF NOT EXISTS given (agent TEXT NOT NULL, thread INTEGER NOT NULL, turn TEXT NOT NULL, floor INTEGER NOT NULL,
  PRIMARY KEY (agent, thread)) STRICT, WITHOUT ROWID;";

/// Posts whose text is kept, to recognize an echo that arrives without its nonce.
const POSTS_KEPT: u32 = 20_000;

/// The bridge's SQLite file; clones share one connection.
#[derive(Clone, Debug)]
pub(crate) struct BridgeStore {
    db: Arc<Mutex<Connection>>,
    /// The prefix of this file's nonces.
    mark: String,
}

/// Where a conversation is shown on Discord.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) reference: String,
    pub(crate) channel: u64,
    pub(crate) origin: u64,
    pub(crate) thread: Option<u64>,
}

/// A post that may have been sent: `id` is `None` until its response arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tried {
    pub(crate) floor: u64,
    pub(crate) id: Option<u64>,
}

pub(super) type Kept<T> = rusqlite::Result<T>;

impl BridgeStore {
    pub(crate) fn open(path: &Path) -> Kept<Self> {
        use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
        // The file holds messages of agents, so only its owner may read it. If it can't be created, opening it reports
        // why.
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
        // FULL, because a post must not go out before it is noted: it would be posted again after a power loss.
        db.pragma_update(None, "synchronous", "FULL")?;
        db.execute_batch(SCHEMA)?;
        let mark = {
            use std::hash::{BuildHasher as _, Hasher as _};
            // Each file has its own prefix: Discord treats two posts with the same nonce as one.
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

    /// Returns the nonce of one part of a post; `seq` is the log position or another name of the post.
    pub(crate) fn nonce(&self, seq: &str, part: usize) -> String {
        format!("{}-{seq}.{part}", self.mark)
    }

    /// Returns whether a nonce was made with this file.
    pub(crate) fn is_own(&self, nonce: &str) -> bool {
        nonce.strip_prefix(&self.mark).is_some_and(|rest| rest.starts_with('-'))
    }

    /// Returns the log position up to which events have been shown.
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

    /// Returns the last handled post of a channel.
    pub(crate) fn handled(&self, channel: u64) -> Kept<Option<u64>> {
        let db = self.db();
        let mut look = db.prepare_cached("SELECT post FROM handled WHERE channel = ?1")?;
        look.query_row([channel.cast_signed()], id).optional()
    }

    /// Returns the channels and threads with handled posts, the most recent first.
    pub(crate) fn followed(&self) -> Kept<Vec<u64>> {
        let db = self.db();
        let mut all = db.prepare_cached("SELECT channel FROM handled ORDER BY post DESC")?;
        all.query_map([], id)?.collect()
    }

    /// Returns the post from which the bridge began in a channel, and the time up to which its archived threads have
    /// been looked through.
    pub(crate) fn began(&self, channel: u64) -> Kept<Option<(u64, String)>> {
        let db = self.db();
        let mut look = db.prepare_cached("SELECT post, put_away FROM began WHERE channel = ?1")?;
        look.query_row([channel.cast_signed()], |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?)))
            .optional()
    }

    /// Notes where the bridge begins in a channel; the first note wins.
    pub(crate) fn begin_in(&self, channel: u64, post: u64, put_away: &str) -> Kept<()> {
        let db = self.db();
        let mut add = db.prepare_cached("INSERT OR IGNORE INTO began VALUES (?1, ?2, ?3)")?;
        add.execute(params![channel.cast_signed(), post.cast_signed(), put_away]).map(|_| ())
    }

    /// Notes that a channel's archived threads have been looked through up to this time.
    pub(crate) fn looked_through(&self, channel: u64, put_away: &str) -> Kept<()> {
        let db = self.db();
        let mut set = db.prepare_cached("UPDATE began SET put_away = max(put_away, ?2) WHERE channel = ?1")?;
        set.execute(params![channel.cast_signed(), put_away]).map(|_| ())
    }

    /// Notes that the posts of a channel are handled up to `post`, and drops the decision on the run that began with
    /// `first`.
    pub(crate) fn handle(&self, channel: u64, first: u64, post: u64) -> Kept<()> {
        let mut db = self.db();
        let change = db.transaction()?;
        change.execute(
            "INSERT INTO handled VALUES (?1, ?2) ON CONFLICT DO UPDATE SET post = max(post, ?2)",
            [channel.cast_signed(), post.cast_signed()],
        )?;
        // Only this run's entries: ids increase across all channels, so a range would drop other channels' decisions.
        change.execute("DELETE FROM decided WHERE post = ?1", [first.cast_signed()])?;
        change.execute("DELETE FROM heads WHERE post = ?1", [first.cast_signed()])?;
        change.commit()
    }

    /// Returns what remains of an earlier try's decision on a post, and the log's head before that try (0 if not
    /// needed).
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

    /// Notes a post that was too old to ask for anything.
    pub(crate) fn miss(&self, post: u64, channel: u64) -> Kept<()> {
        let db = self.db();
        let mut add = db.prepare_cached("INSERT OR IGNORE INTO late VALUES (?1, ?2)")?;
        add.execute(params![post.cast_signed(), channel.cast_signed()]).map(|_| ())
    }

    /// Returns the channels whose humans must be notified of posts that were too old: channel, count and last post.
    pub(crate) fn missed(&self) -> Kept<Vec<(u64, u64, u64)>> {
        let db = self.db();
        let mut all = db.prepare_cached("SELECT channel, count(*), max(post) FROM late GROUP BY channel")?;
        let number = |row: &rusqlite::Row<'_>, at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
        all.query_map([], |row| Ok((number(row, 0)?, number(row, 1)?, number(row, 2)?)))?.collect()
    }

    /// Notes that humans were notified of such posts up to this one.
    pub(crate) fn told(&self, channel: u64, last: u64) -> Kept<()> {
        let db = self.db();
        let mut drop = db.prepare_cached("DELETE FROM late WHERE channel = ?1 AND post <= ?2")?;
        drop.execute(params![channel.cast_signed(), last.cast_signed()]).map(|_| ())
    }

    /// Returns a thread's channel if it is known; `Some(None)` for an id that isn't a thread.
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

    /// Notes where a conversation is shown; the first note wins.
    pub(crate) fn place(&self, place: &Place) -> Kept<()> {
        let db = self.db();
        let mut add = db.prepare_cached("INSERT OR IGNORE INTO threads VALUES (?1, ?2, ?3, ?4, NULL)")?;
        let thread = place.thread.map(u64::cast_signed);
        add.execute(params![place.reference, place.channel.cast_signed(), place.origin.cast_signed(), thread])
            .map(|_| ())
    }

    /// Notes that a conversation is shown in the place of another one.
    pub(crate) fn join(&self, reference: &str, root: &str) -> Kept<()> {
        self.db().prepare_cached("INSERT OR IGNORE INTO kin VALUES (?1, ?2)")?.execute([reference, root]).map(|_| ())
    }

    /// Removes the place of a conversation that wasn't opened after all.
    pub(crate) fn unplace(&self, reference: &str, origin: u64) -> Kept<()> {
        let db = self.db();
        let mut drop = db.prepare_cached("DELETE FROM threads WHERE ref = ?1 AND origin = ?2")?;
        drop.execute(params![reference, origin.cast_signed()]).map(|_| ())
    }

    /// Notes that a human's own post showed a request to a foreign bot.
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

    /// Returns where a conversation is shown: in its own place, or in that of the conversation it came from.
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

    /// Notes the agent that a human asked last in a conversation.
    pub(crate) fn involve(&self, reference: &str, agent: &str) -> Kept<()> {
        let db = self.db();
        db.prepare_cached("UPDATE threads SET agent = ?2 WHERE ref = ?1")?.execute([reference, agent]).map(|_| ())
    }

    /// Returns the conversation that a thread shows; the first one if it shows several.
    pub(crate) fn thread(&self, thread: u64) -> Kept<Option<Thread>> {
        let db = self.db();
        let mut look =
            db.prepare_cached("SELECT ref, agent FROM threads WHERE thread = ?1 ORDER BY origin, length(ref) LIMIT 1")?;
        let found = |row: &rusqlite::Row<'_>| Ok(Thread { reference: row.get(0)?, agent: row.get(1)? });
        look.query_row([thread.cast_signed()], found).optional()
    }

    /// Returns the earlier try of a post.
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

    /// Notes that a post is about to be tried. If it gets posted, it comes after everything known in the channel now
    /// (`floor`).
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

    /// Notes the id of a sent post. Now and then, drops the oldest posts beyond `POSTS_KEPT`.
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

    /// Returns whether the bridge made a post: by its id, or by its text if the id isn't known yet.
    pub(crate) fn is_echo(&self, channel: u64, post: u64, content: &str) -> Kept<bool> {
        let db = self.db();
        let mut look = db.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM posts WHERE id = ?2)
                 OR EXISTS (SELECT 1 FROM posts WHERE channel = ?1 AND id IS NULL AND floor < ?2 AND content = ?3)",
        )?;
        look.query_row(params![channel.cast_signed(), post.cast_signed(), content], |row| row.get(0))
    }

    /// Returns whether a post already belongs to a nonce.
    pub(crate) fn is_known(&self, post: u64) -> Kept<bool> {
        let db = self.db();
        let mut look = db.prepare_cached("SELECT EXISTS (SELECT 1 FROM posts WHERE id = ?1)")?;
        look.query_row([post.cast_signed()], |row| row.get(0))
    }

    /// Returns whether a hint was already given.
    pub(crate) fn hinted(&self, about: &str) -> Kept<bool> {
        let db = self.db();
        db.prepare_cached("SELECT EXISTS (SELECT 1 FROM hints WHERE about = ?1)")?.query_row([about], |row| row.get(0))
    }

    pub(crate) fn hint(&self, about: &str) -> Kept<()> {
        self.db().prepare_cached("INSERT OR IGNORE INTO hints VALUES (?1)")?.execute([about]).map(|_| ())
    }

    /// Forgets a hint, so that it can be given again; returns whether it was given.
    pub(crate) fn unhint(&self, about: &str) -> Kept<bool> {
        self.db().prepare_cached("DELETE FROM hints WHERE about = ?1")?.execute([about]).map(|gone| gone > 0)
    }

    /// Returns the Discord user of an agent's bot, as of the last time that it was signed in.
    pub(crate) fn bot_user(&self, agent: &str) -> Kept<Option<u64>> {
        let db = self.db();
        db.prepare_cached("SELECT user FROM bots WHERE agent = ?1")?.query_row([agent], id).optional()
    }

    pub(crate) fn set_bot_user(&self, agent: &str, user: u64) -> Kept<()> {
        let db = self.db();
        let mut set = db.prepare_cached("INSERT OR REPLACE INTO bots VALUES (?1, ?2)")?;
        set.execute(params![agent, user.cast_signed()]).map(|_| ())
    }

    /// Notes that a turn was shown to a foreign bot in a thread; its posts up to `floor` don't answer the turn.
    pub(crate) fn show_turn(&self, agent: &str, place: TurnPlace, turn: &str, floor: u64) -> Kept<()> {
        let db = self.db();
        // Turns are numbered in the order in which they open, so reading the log again doesn't bring an old one back.
        let mut set = db.prepare_cached(
            "INSERT INTO given VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET turn = ?3, floor = ?4
             WHERE CAST(ltrim(turn, 'turn-') AS INTEGER) < CAST(ltrim(?3, 'turn-') AS INTEGER)",
        )?;
        set.execute(params![agent, place.id().cast_signed(), turn, floor.cast_signed()]).map(|_| ())
    }

    /// Lowers a turn's floor to this post: later posts may answer it.
    pub(crate) fn answers_behind(&self, turn: &str, post: u64) -> Kept<()> {
        let db = self.db();
        let mut set = db.prepare_cached("UPDATE given SET floor = min(floor, ?2) WHERE turn = ?1")?;
        set.execute(params![turn, post.cast_signed()]).map(|_| ())
    }

    /// Returns the turn that a foreign bot's post may answer: one shown there before the post.
    pub(crate) fn turn(&self, agent: &str, place: TurnPlace, post: u64) -> Kept<Option<String>> {
        let db = self.db();
        let mut look = db.prepare_cached("SELECT turn FROM given WHERE agent = ?1 AND thread = ?2 AND floor < ?3")?;
        look.query_row(params![agent, place.id().cast_signed(), post.cast_signed()], |row| row.get(0)).optional()
    }

    pub(crate) fn end_turn(&self, turn: &str) -> Kept<()> {
        self.db().prepare_cached("DELETE FROM given WHERE turn = ?1")?.execute([turn]).map(|_| ())
    }
}

/// Maps an error of the bridge's file to an unreachable broker: without the file the bridge can neither show nor read
/// anything.
#[expect(clippy::needless_pass_by_value, reason = "the signature that `map_err` takes")]
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
            // The last two may already have been dropped.
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
