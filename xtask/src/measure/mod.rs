//! Measures how the project reads: sizes, docs, comments, duplicates, circles between modules, and the words of its
//! prose.

mod items;
mod prose;
mod shape;
mod tree;

use serde_json::{Map, Value, json};

use self::items::Function;
use self::prose::{Kinds, PHRASES, Phrase};
use self::tree::{Finding, Shipped, SourceFile};
use crate::Failed;

/// The forms of the command.
pub(crate) const USAGE: &str = "\
  cargo xtask measure            a table for people
  cargo xtask measure --json     the same for programs
  cargo xtask measure --list WHAT
                                 each place; WHAT: docs, words, duplicates, circles, tuples or names";

/// Prints the figures of the project, or the places behind one of them.
pub(crate) fn run(args: &[&str]) -> Result<(), Failed> {
    let measured = Measured::take()?;
    match args {
        [] => measured.figures.iter().for_each(|figure| println!("{:31}  {}", figure.name, plain(&figure.value))),
        ["--json"] => {
            let figures = measured.figures.into_iter().map(|figure| (figure.name, figure.value));
            println!("{:#}", Value::Object(Map::from_iter(figures)));
        }
        ["--list", what] => {
            let list = measured.lists.iter().find(|list| list.name == *what).ok_or_else(|| Failed::usage(USAGE))?;
            for Finding { path, line, text } in &list.places {
                println!("{}:{line}: {text}", path.display());
            }
        }
        _ => return Err(Failed::usage(USAGE)),
    }
    Ok(())
}

/// A line of the table.
struct Figure {
    name: String,
    value: Value,
}

/// The places behind a figure.
struct List {
    name: &'static str,
    places: Vec<Finding>,
}

/// All figures, and the places behind them.
struct Measured {
    figures: Vec<Figure>,
    lists: Vec<List>,
}

impl Measured {
    fn take() -> Result<Self, Failed> {
        let mut sources = SourceFile::tracked("*.rs")?;
        let code = sources.len();
        sources.extend(SourceFile::tracked("*.md")?);
        let shipped: Vec<Shipped<'_>> = sources[..code].iter().filter_map(SourceFile::shipped).collect();
        let mut kinds = Kinds::default();
        shipped.iter().for_each(|source| kinds.add(source));
        let mut measured = Self { figures: Vec::new(), lists: Vec::new() };
        measured.add("source files", code);
        measured.add("lines of shipped code", kinds.code);
        measured.add_longest(&sources[..code], &shipped);
        measured.add("lines of docs", kinds.docs);
        measured.add_list("docs of one or two words", "docs", kinds.brief);
        let share = format!("{:.1}", 100.0 * kinds.comments as f64 / kinds.code as f64);
        measured.add("inline comments, % of code", share.parse::<f64>().unwrap_or_default());
        measured.add_list("duplicates of six lines", "duplicates", shape::duplicates(&shipped));
        measured.add_list("circles between modules", "circles", shape::circles(&shipped));
        measured.add_list("parameters that are tuples", "tuples", shipped.iter().flat_map(items::tuples).collect());
        let names = items::shared_names(&shipped);
        measured.add("names of four or more types", names.len());
        measured.lists.push(List { name: "names", places: names.into_values().flatten().collect() });
        measured.add_prose(&sources);
        Ok(measured)
    }

    fn add(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.figures.push(Figure { name: name.into(), value: value.into() });
    }

    fn add_list(&mut self, figure: &str, name: &'static str, places: Vec<Finding>) {
        self.add(figure, places.len());
        self.lists.push(List { name, places });
    }

    fn add_longest(&mut self, sources: &[SourceFile], shipped: &[Shipped<'_>]) {
        let longest = sources.iter().max_by_key(|source| (source.text.lines().count(), &source.path));
        let file = longest.map(|source| format!("{} {}", source.text.lines().count(), source.path.display()));
        self.add("longest file", file);
        let all = shipped.iter().flat_map(|source| items::functions(source).into_iter().map(|f| (f, source.path)));
        let functions: Vec<(Function, _)> = all.collect();
        let longest = functions.iter().max_by_key(|(function, path)| (function.lines, &function.name, *path));
        let function = longest.map(|(f, path)| format!("{} {} {}", f.lines, f.name, path.display()));
        self.add("longest function", function);
        self.add("functions over 70 lines", functions.iter().filter(|(function, _)| function.lines > 70).count());
    }

    fn add_prose(&mut self, sources: &[SourceFile]) {
        let lines = sources.iter().flat_map(prose::prose).filter(|line| !line.trim().is_empty());
        self.add("lines of prose", lines.count());
        let mut words = Vec::new();
        for phrase in PHRASES {
            let Phrase { name, .. } = phrase;
            let places = phrase.places(sources);
            self.add(format!("phrase: {name}"), places.len());
            words.extend(places);
        }
        self.lists.push(List { name: "words", places: words });
    }
}

/// Returns a value without the quotation marks of a text.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| json!(value).to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: text.to_owned() }
    }

    #[test]
    fn functions_tuples_and_docs_are_found_in_what_ships() {
        let text = "/// Adds.\npub(crate) const fn add<T>(pair: (T, T)) -> T {\n    pair.0\n}\nfn f(run: &(dyn Fn()));\
                    \n\
                    #[cfg(test)]\nmod tests {\n    fn hidden(pair: (u8, u8)) {}\n}\n";
        let source = source("a/src/lib.rs", text);
        let shipped = source.shipped().unwrap();
        let functions = items::functions(&shipped);
        assert_eq!(functions.iter().map(|f| (f.name.as_str(), f.lines)).collect::<Vec<_>>(), [("add", 3)]);
        assert_eq!(items::tuples(&shipped).iter().map(|place| place.line).collect::<Vec<_>>(), [2]);
        let mut kinds = Kinds::default();
        kinds.add(&shipped);
        assert_eq!((kinds.docs, kinds.brief.len(), kinds.code), (1, 1, 4));
    }

    #[test]
    fn phrases_are_counted_in_comments_and_documents_and_only_as_whole_words() {
        let sources = [
            source("a.rs", "let told = 1; // Who sees it is told, whoever stands by itself.\n"),
            source("a.md", "what is untold; standstill; who sees2\n"),
        ];
        let counts: Vec<usize> = PHRASES.iter().map(|phrase| phrase.places(&sources).len()).collect();
        assert_eq!(counts, [2, 0, 1, 1, 0, 1, 1]);
    }

    #[test]
    fn duplicates_and_circles_are_found_once() {
        let lines = "let a_1 = 1;\nlet a_2 = 2;\nlet a_3 = 3;\nlet a_4 = 4;\nlet a_5 = 5;\nlet a_6 = 6;\n";
        let sources = [
            source("a/src/one.rs", &format!("use crate::two::B;\n{lines}")),
            source("a/src/two.rs", &format!("use crate::one::A;\n{lines}")),
        ];
        let shipped: Vec<Shipped<'_>> = sources.iter().filter_map(SourceFile::shipped).collect();
        let copies = shape::duplicates(&shipped);
        assert_eq!(copies.iter().map(|copy| copy.text.as_str()).collect::<Vec<_>>(), ["a/src/one.rs:2"]);
        assert_eq!(shape::circles(&shipped).len(), 1);
    }
}
