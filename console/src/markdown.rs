//! Markdown that agents write, shown safely: no markup of theirs, no images, and links only as text.

use lastword_facts::visible::escape;
use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::parts::{Fold, excerpt, foreign};

/// Shows a text of others: as Markdown with the raw text on demand if it has any, otherwise as it is. A long text is
/// shown as it is, too, because only that can be folded.
pub(super) fn text(text: &str) -> Markup {
    if Fold::USUAL.lines_unseen(&escape(text)) > 0 || !is_markdown(text) {
        return foreign(text);
    }
    html! {
        div.foreign.markdown { (rendered(text)) }
        details.raw { summary { "Raw text" } (foreign(text)) }
    }
}

/// Returns the words of a text without the marks that Markdown has for their looks: for titles and lines of lists.
pub(super) fn plain(text: &str) -> String {
    if !is_markdown(text) {
        return text.to_owned();
    }
    let mut out = String::new();
    for event in parsed(text) {
        match event {
            Event::Text(words)
            | Event::Code(words)
            | Event::Html(words)
            | Event::InlineHtml(words)
            | Event::FootnoteReference(words)
            | Event::InlineMath(words)
            | Event::DisplayMath(words) => out.push_str(&words),
            Event::SoftBreak | Event::HardBreak => out.push('\n'),
            Event::End(TagEnd::Paragraph | TagEnd::Heading(_) | TagEnd::Item | TagEnd::CodeBlock)
                if !out.ends_with('\n') =>
            {
                out.push('\n')
            }
            Event::Start(_) | Event::End(_) | Event::Rule | Event::TaskListMarker(_) => {}
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Shows the begin of a text of others on one line, without the marks of Markdown.
pub(super) fn line(text: &str, chars: usize) -> Markup {
    // Marks are short: what is read beyond what is shown is for them.
    let read = &text[..text.floor_char_boundary(chars.saturating_mul(8))];
    let plain = plain(read);
    let more = read.len() < text.len() && plain.chars().nth(chars).is_none();
    html! { (excerpt(&plain, chars)) @if more { "…" } }
}

fn parsed(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH)
}

/// Returns whether a text has more than paragraphs of plain words. Markup in it doesn't count, because it is shown as
/// written.
fn is_markdown(text: &str) -> bool {
    parsed(text).any(|event| match event {
        Event::Start(Tag::Paragraph | Tag::HtmlBlock | Tag::Link { .. } | Tag::Image { .. })
        | Event::End(_)
        | Event::Text(_)
        | Event::SoftBreak
        | Event::HardBreak
        | Event::Html(_)
        | Event::InlineHtml(_)
        | Event::FootnoteReference(_)
        | Event::InlineMath(_)
        | Event::DisplayMath(_)
        | Event::TaskListMarker(_) => false,
        Event::Start(_) | Event::Code(_) | Event::Rule => true,
    })
}

/// Where links and images lead, until their text is over.
struct Writer {
    out: String,
    targets: Vec<String>,
}

fn rendered(text: &str) -> Markup {
    let mut writer = Writer { out: String::new(), targets: Vec::new() };
    for event in parsed(text) {
        writer.event(event);
    }
    // Only tags of this file are in it; every text passed through `say`.
    PreEscaped(writer.out)
}

impl Writer {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text)
            | Event::Html(text)
            | Event::InlineHtml(text)
            | Event::FootnoteReference(text)
            | Event::InlineMath(text)
            | Event::DisplayMath(text) => self.say(&text),
            Event::Code(code) => {
                self.out.push_str("<code>");
                self.say(&code);
                self.out.push_str("</code>");
            }
            // The writer's own line ends stay.
            Event::SoftBreak | Event::HardBreak => self.out.push_str("<br>"),
            Event::Rule => self.out.push_str("<hr>"),
            Event::TaskListMarker(done) => self.out.push_str(if done { "☑ " } else { "☐ " }),
        }
    }

    /// Writes a text of others, with its invisible characters made visible and without markup.
    fn say(&mut self, text: &str) {
        let words = escape(text);
        self.out.push_str(&html! { (words) }.into_string());
    }

    fn start(&mut self, tag: Tag<'_>) {
        if let Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } = tag {
            self.targets.push(dest_url.into_string());
        } else if matches!(tag, Tag::CodeBlock(_)) {
            self.out.push_str("<pre><code>");
        } else {
            self.out.push_str(&format!("<{}>", name(&tag.to_end())));
        }
    }

    fn end(&mut self, tag: TagEnd) {
        if matches!(tag, TagEnd::Link | TagEnd::Image) {
            // A link could claim to lead elsewhere: its target is shown, and the reader copies it.
            if let Some(target) = self.targets.pop() {
                self.out.push_str(" <code class=\"faint\">");
                self.say(&target);
                self.out.push_str("</code>");
            }
        } else if tag == TagEnd::CodeBlock {
            self.out.push_str("</code></pre>");
        } else {
            self.out.push_str(&format!("</{}>", name(&tag)));
        }
    }
}

/// Returns the element for a part of the text. Headings are below those of the page.
const fn name(tag: &TagEnd) -> &'static str {
    match tag {
        TagEnd::Heading(_) => "h4",
        TagEnd::BlockQuote(_) => "blockquote",
        TagEnd::List(true) => "ol",
        TagEnd::List(false) => "ul",
        TagEnd::Item => "li",
        TagEnd::Table => "table",
        TagEnd::TableHead | TagEnd::TableRow => "tr",
        TagEnd::TableCell => "td",
        TagEnd::Emphasis => "em",
        TagEnd::Strong => "strong",
        TagEnd::Strikethrough => "s",
        TagEnd::Paragraph => "p",
        TagEnd::CodeBlock
        | TagEnd::HtmlBlock
        | TagEnd::FootnoteDefinition
        | TagEnd::DefinitionList
        | TagEnd::DefinitionListTitle
        | TagEnd::DefinitionListDefinition
        | TagEnd::Superscript
        | TagEnd::Subscript
        | TagEnd::Link
        | TagEnd::Image
        | TagEnd::MetadataBlock(_) => "span",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_has_the_words_without_their_marks() {
        assert_eq!(plain("# Which **region**?\n\n- `eu`\n- us"), "Which region?\neu\nus");
        assert_eq!(plain("2 * 3 * 4 <b>"), "2 * 3 * 4 <b>");
        let shown = |text: &str, chars| line(text, chars).into_string();
        assert_eq!(shown("**Fix** the `login`\n\nnow", 99), "Fix the login⏎now");
        assert_eq!(shown("`Fix` the login", 3), "Fix…");
        assert_eq!(shown(&"`a` ".repeat(99), 99).chars().count(), 100);
        assert_eq!(shown(&format!("**ab**{}", "\n".repeat(99)), 9), "ab…");
    }

    #[test]
    fn plain_words_stay_as_they_are() {
        for plain in ["Fix it", "one\ntwo\n\nthree", "a <b>bold</b> claim", "see https://example.org", "[x](http://y)"]
        {
            assert!(!text(plain).into_string().contains("markdown"), "{plain}");
        }
    }

    #[test]
    fn markdown_is_shown_with_its_raw_text_and_without_markup_or_links_of_others() {
        let shown =
            text("# Title\n\n- **one** `a<b`\n- <img src=x onerror=hit>\n\n[pay](javascript:x) ![i](http://e/i.png)\n")
                .into_string();
        for part in ["<h4>Title</h4>", "<li><strong>one</strong> <code>a&lt;b</code></li>", "<summary>Raw text"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(shown.contains("pay <code class=\"faint\">javascript:x</code>"), "{shown}");
        for hostile in ["<img", "<a ", "href", "onerror=hit>"] {
            assert!(!shown.contains(hostile), "{hostile}: {shown}");
        }
        assert!(text("`\u{202e}x`").into_string().contains("<code>\\u{202e}x</code>"));
    }
}
