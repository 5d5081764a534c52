//! The changes of a task, as one reader follows them in the log.

use std::collections::VecDeque;
use std::sync::Arc;

use lastword_facts::{Entry, Seq};
use lastword_server::Context;
use lastword_server::calls::{Caller, messages};
use lastword_server::edges::LogTail;
use lastword_server::edges::http::StreamPermit;

use crate::fault::Fault;
use crate::fold::{Change, Fold, Next, after, holds};
use crate::model::{StreamResponse, TaskStatus};
use crate::tasks::{TaskSnapshot, outcome, status};

/// The most entries that are read in one step.
const BATCH_MAX: usize = 128;

/// A reader of one task. It ends with the task, or with the server.
pub(crate) struct TaskStream {
    tail: LogTail,
    id: String,
    context: String,
    fold: Fold,
    ready: VecDeque<(Seq, StreamResponse)>,
    /// A call that was just held: the policy may decide it in the same step.
    held: Option<(Seq, Arc<Entry>)>,
    /// Changes up to here were told before.
    told: Seq,
    over: bool,
    /// Its place among the caller's streams.
    #[expect(dead_code, reason = "it is held")]
    permit: Option<StreamPermit>,
}

impl TaskStream {
    /// Follows a task from what is known of it: the first event is the task as it is.
    pub(crate) async fn open(
        ctx: &Context,
        caller: Caller,
        known: &TaskSnapshot,
        history: Option<i32>,
    ) -> Result<Self, Fault> {
        let task = known.shown(ctx, history, true).await?;
        let mut stream = Self::follow(ctx, caller, known, known.fold.clone(), known.at);
        stream.over = known.fold.settled.is_some();
        stream.ready.push_back((known.at, StreamResponse::Task(Box::new(task))));
        Ok(stream)
    }

    /// Follows a task from its begin, and gives the changes after the position that was told last.
    pub(crate) fn resume(ctx: &Context, caller: Caller, known: &TaskSnapshot, told: Seq) -> Self {
        let fold = Fold::new(known.fold.task, known.fold.seated);
        Self { told, ..Self::follow(ctx, caller, known, fold, known.request) }
    }

    /// Holds a place among the caller's streams until it ends.
    pub(crate) fn with(self, permit: Option<StreamPermit>) -> Self {
        Self { permit, ..self }
    }

    fn follow(ctx: &Context, caller: Caller, known: &TaskSnapshot, fold: Fold, at: Seq) -> Self {
        let tail = LogTail::new(ctx.clone(), caller, Some(at));
        let (id, context) = (known.id.to_string(), known.context.clone());
        Self { tail, id, context, fold, ready: VecDeque::new(), held: None, told: Seq(0), over: false, permit: None }
    }

    /// Returns the next change with its position; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<(Seq, StreamResponse)> {
        loop {
            if let Some(next) = self.ready.pop_front() {
                return Some(next);
            }
            if self.over {
                return None;
            }
            self.tail.grown().await?;
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Option<()> {
        while !self.over && self.tail.last() < self.tail.committed() {
            for (seq, entry) in self.tail.read(BATCH_MAX).await? {
                self.hear(seq, entry).await?;
                if self.over {
                    return Some(());
                }
            }
        }
        // The facts of one step are written together, so no decision of the policy is still to come.
        if let Some((seq, held)) = self.held.take() {
            self.say(seq, &held).await?;
        }
        Some(())
    }

    async fn hear(&mut self, seq: Seq, entry: Arc<Entry>) -> Option<()> {
        if let Some((at, held)) = self.held.take() {
            match after(&held.fact, &entry.fact) {
                Next::Ruled => {
                    self.held = Some((at, held));
                    return Some(());
                }
                Next::Decided => return Some(()),
                Next::Other => self.say(at, &held).await?,
            }
        }
        if holds(&entry.fact, self.fold.task) {
            self.held = Some((seq, entry));
            return Some(());
        }
        self.say(seq, &entry).await
    }

    async fn say(&mut self, seq: Seq, entry: &Entry) -> Option<()> {
        match self.fold.hear(seq, entry) {
            None => {}
            Some(Change::Status { at, state, said }) => {
                self.tell(seq, status(&self.id, &self.context, state, said, at));
            }
            Some(Change::Settled) => {
                self.over = true;
                let answer = messages::one(self.tail.ctx(), seq).await.ok()?;
                let (artifact, status) = outcome(&answer, &self.id, &self.context);
                if let Some(artifact) = artifact.filter(|_| seq > self.told) {
                    let (task_id, context_id) = (self.id.clone(), self.context.clone());
                    let artifact = Box::new(artifact);
                    self.ready.push_back((
                        seq,
                        StreamResponse::ArtifactUpdate { task_id, context_id, artifact, last_chunk: true },
                    ));
                }
                self.tell(seq, status);
            }
        }
        Some(())
    }

    fn tell(&mut self, seq: Seq, status: TaskStatus) {
        if seq > self.told {
            let (task_id, context_id) = (self.id.clone(), self.context.clone());
            let status = Box::new(status);
            self.ready.push_back((seq, StreamResponse::StatusUpdate { task_id, context_id, status }));
        }
    }
}
