//! What the sources of the templates have to look like.

/// The attributes that hold addresses.
const ATTRIBUTES: [&str; 8] = ["href", "src", "action", "hx-get", "hx-post", "data-beside", "data-live", "data-worker"];

/// A literal address in a template lacks the path behind a proxy.
#[test]
fn templates_write_addresses_by_one_function() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let (mut addresses, mut wrong) = (0, Vec::new());
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    for path in paths.filter(|path| path.extension().is_some_and(|kind| kind == "rs")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let templates = text.split("#[cfg(test)]").next().unwrap_or_default();
        let begins = ATTRIBUTES.map(|name| format!(" {name}="));
        for rest in begins.iter().flat_map(|begin| templates.split(begin.as_str()).skip(1)) {
            addresses += 1;
            let value = rest.trim_start_matches("{ ").get(..9).unwrap_or_default();
            // One outside of the server is whole already.
            let by = ["(url(", "\"#", "\"?", "(assets::", "(action)", "(path) (q", "(outside)"];
            if !by.iter().any(|by| value.starts_with(by)) {
                wrong.push(format!("{}: {}", path.display(), rest.lines().next().unwrap_or_default()));
            }
        }
    }
    assert!(addresses > 120, "{addresses}");
    assert_eq!(wrong, Vec::<String>::new());
}
