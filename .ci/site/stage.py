"""Lays the pages of the book out as they lie in the repository, so that their links hold: stage.py DIR.

site/SUMMARY.md lists the pages. The decisions follow theirs, and a source file that a page links to becomes a page at the end.
"""

import re
import shutil
import sys
from pathlib import Path

out = Path(sys.argv[1])
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
LANGUAGES = {".py": "python", ".ts": "typescript", ".rs": "rust", ".json": "json"}


def title(page: Path) -> str:
    return page.read_text().split("\n", 1)[0].removeprefix("# ")


def write(name: str, text: str) -> None:
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    (out / name).write_text(text)


def source_page(path: str) -> str:
    """A page with a source file, or with all files of a folder."""
    files = sorted(file for file in Path(path).iterdir() if file.is_file()) if Path(path).is_dir() else [Path(path)]
    text = f"# `{path}`\n"
    for file in files:
        heading = f"\n## `{file.name}`\n" if len(files) > 1 else ""
        text += f"{heading}\n````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text()}````\n"
    return text


def main() -> None:
    summary = Path("site/SUMMARY.md").read_text()
    decisions = [f"    - [{title(page)}](../{page})" for page in sorted(Path("docs/adr").glob("0*.md"))]
    summary = re.sub(r"(.*docs/adr/README\.md\)\n)", lambda m: m[1] + "\n".join(decisions) + "\n", summary)
    pages = {str((Path("site") / link).resolve().relative_to(Path.cwd())) for link, _ in LINK.findall(summary)}
    missed = {str(p) for p in Path("docs").rglob("*.md")} - pages
    if missed:
        sys.exit(f"not in site/SUMMARY.md: {sorted(missed)}")
    # Both references replace their pages; what is here is for the search.
    generated = {
        "docs/openapi.md": "# All calls (OpenAPI)\n\nEvery call of HTTP, with its parameters and answers.\n",
        "docs/asyncapi.md": "# All frames (AsyncAPI)\n\nEvery frame of a session.\n",
    }
    sources: set[str] = set()

    def relinked(page: str) -> str:
        def link(match: re.Match[str]) -> str:
            target, anchor = match[1], match[2] or ""
            path = (Path(page).parent / target).resolve()
            if ":" in target or not path.exists() or str(path.relative_to(Path.cwd())) in pages:
                return match[0]
            if (path / "README.md").exists():
                return f"]({target}/README.md{anchor})"
            if path.suffix in {".json", ".png"}:
                return match[0]
            sources.add(str(path.relative_to(Path.cwd())))
            return f"]({target}.md{anchor})"

        return LINK.sub(link, Path(page).read_text())

    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree("docs", out / "docs", ignore=lambda _, names: [name for name in names if name.endswith(".md")])
    for page in sorted(pages):
        if page in generated:
            write(page, generated[page])
        elif page == "site/front.md":
            write("index.md", relinked(page).replace("../", ""))
        else:
            write(page, relinked(page))
    for source in sources:
        write(f"{source}.md", source_page(source))
    named = "".join(f"- [{source}](../{source}.md)\n" for source in sorted(sources))
    summary += f"\n# Files that pages name\n\n{named}"
    write("SUMMARY.md", summary.replace("](front.md", "](index.md").replace("](../", "]("))


main()
