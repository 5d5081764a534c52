//! Appends, by batch size: the SQLite log beside a bare file, in one run on one disk.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lastword_facts::fact::{Part, Recipient};
use lastword_facts::ids::{AgentId, ConvId, GrantId};
use lastword_facts::{Entry, Fact, Message, MessageType, Seq, Time};
use lastword_store::{DataDir, Index, Log, MemoryLog, format};

const BATCHES: [usize; 4] = [1, 16, 128, 1024];
const BODY_BYTES: usize = 400;

fn appends(c: &mut Criterion) {
    let mut group = c.benchmark_group("append");
    for batch in BATCHES {
        let entries = entries(batch);
        group.throughput(Throughput::Elements(batch as u64));
        group.bench_function(BenchmarkId::new("bare-file", batch), |b| {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory on the disk");
            let mut file = BareFile::create(&dir.path().join("bare")).expect("a file");
            b.iter(|| file.append(black_box(&entries)).expect("an append"));
        });
        group.bench_function(BenchmarkId::new("sqlite", batch), |b| {
            let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory on the disk");
            let mut log = DataDir::at(dir.path()).open().expect("a log");
            let epoch = log.begin_epoch().expect("an epoch");
            let mut last = Seq(0);
            b.iter(|| last = log.append(epoch, last, black_box(&entries)).expect("an append"));
        });
    }
    group.finish();
}

fn reads(c: &mut Criterion) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory on the disk");
    let mut log = DataDir::at(dir.path()).open().expect("a log");
    let epoch = log.begin_epoch().expect("an epoch");
    let batch = entries(1024);
    let mut last = Seq(0);
    for _ in 0..100 {
        last = log.append(epoch, last, &batch).expect("an append");
    }
    let reader = log.reader();
    let mut group = c.benchmark_group("read");
    group.throughput(Throughput::Elements(last.0));
    group.bench_function("replay", |b| {
        b.iter(|| {
            let mut from = Seq(1);
            while let Some((seq, _)) = reader.read(from, 4096).expect("a read").last() {
                from = Seq(seq.0 + 1);
            }
        });
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("one-entry", |b| b.iter(|| reader.entry(black_box(Seq(50_500))).expect("a read")));
    group.finish();
}

fn index(c: &mut Criterion) {
    let batch = entries(1024);
    let mut log = MemoryLog::new();
    let epoch = log.begin_epoch().expect("an epoch");
    log.append(epoch, Seq(0), &batch).expect("an append");
    let mut group = c.benchmark_group("index");
    group.throughput(Throughput::Elements(batch.len() as u64));
    group.bench_function("apply-1024", |b| {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory on the disk");
        let mut index = Index::open(dir.path()).expect("an index");
        b.iter(|| {
            let numbered: Vec<_> = (index.last().0 + 1..).map(Seq).zip(batch.iter().map(Arc::as_ref)).collect();
            index.apply(&numbered).expect("an update");
        });
    });
    group.finish();
}

/// What the log is measured against: the same framing in a growing file, one `fdatasync` a batch.
struct BareFile {
    file: File,
    buffer: Vec<u8>,
}

impl BareFile {
    fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Self { file: OpenOptions::new().append(true).create(true).open(path)?, buffer: Vec::new() })
    }

    fn append(&mut self, entries: &[Arc<Entry>]) -> std::io::Result<()> {
        self.buffer.clear();
        for entry in entries {
            format::encode(&mut self.buffer, entry).map_err(std::io::Error::other)?;
        }
        self.file.write_all(&self.buffer)?;
        self.file.sync_data()
    }
}

fn entries(count: usize) -> Vec<Arc<Entry>> {
    (0..count as u64).map(entry).map(Arc::new).collect()
}

fn entry(n: u64) -> Entry {
    let words = ["review", "parser", "the", "result", "of", "test", "fails", "with", "error", "line"];
    let mut body = format!("message {n}:");
    let mut seed = n;
    while body.len() < BODY_BYTES {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        body.push(' ');
        body.push_str(words[usize::try_from(seed >> 33).unwrap_or(0) % words.len()]);
    }
    let message = Message {
        from: AgentId(1),
        to: Recipient::One(AgentId(2)),
        kind: MessageType::Info,
        conv: ConvId(3),
        depth: 0,
        hops: 0,
        grant: Some(GrantId(1)),
        sender_task: None,
        cause: None,
        in_reply_to: None,
        key: None,
        action: None,
        payload: None,
        body: body.into(),
        metadata: None,
        part: Part::Plain,
    };
    Entry {
        at: Time(1_700_000_000_000 + n),
        grant: Some((GrantId(1), 64)),
        fact: Fact::Accepted { message: Box::new(message) },
    }
}

criterion_group!(benches, appends, reads, index);
criterion_main!(benches);
