//! What a Rust file declares and where, from its syntax tree, and the words that rules look for, from its tokens.

use std::ops::RangeInclusive;
use std::str::FromStr;

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::{File, Finding};

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// From the line of its name to the closing brace.
    pub(super) lines: RangeInclusive<usize>,
    /// From the opening to the closing brace.
    pub(super) body: RangeInclusive<usize>,
}

/// A type or a module that the file declares.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) line: usize,
}

/// A word in the code (not in a comment or a string) that some rule looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// An attribute that keeps a test from running.
    Ignore,
    /// A call of a macro that stands for code to be written.
    Todo,
    /// A call of a function named `sleep`.
    Sleep,
}

/// What a Rust file declares.
#[derive(Debug, Default)]
pub(super) struct Outline {
    pub(super) functions: Vec<Function>,
    pub(super) types: Vec<Named>,
    pub(super) modules: Vec<Named>,
    /// The lines of functions and modules that are compiled for tests alone.
    pub(super) tests: Vec<RangeInclusive<usize>>,
    pub(super) marks: Vec<(Mark, usize)>,
}

impl Outline {
    /// Reads a file, or says on which line it is no Rust.
    pub(super) fn of(file: &File) -> Result<Outline, Finding> {
        let failed = |line: usize, error: String| {
            Finding::new(&file.path, line, format!("not Rust: {error}"), "make it compile")
        };
        let tokens = TokenStream::from_str(&file.text)
            .map_err(|error| failed(line_of(error.span()), error.to_string()))?;
        let syntax: syn::File =
            syn::parse2(tokens.clone()).map_err(|error| failed(line_of(error.span()), error.to_string()))?;
        let mut outline = Outline::default();
        outline.visit_file(&syntax);
        collect_marks(tokens, &mut outline.marks);
        Ok(outline)
    }

    /// Tells whether a line is compiled for tests alone.
    pub(super) fn is_test(&self, line: usize) -> bool {
        self.tests.iter().any(|lines| lines.contains(&line))
    }

    /// Returns the innermost function around a line.
    pub(super) fn function_at(&self, line: usize) -> Option<&Function> {
        self.functions.iter().filter(|f| f.lines.contains(&line)).max_by_key(|f| *f.lines.start())
    }

    fn function(&mut self, name: &syn::Ident, block: &syn::Block) {
        let (start, end) = (line_of(block.brace_token.span.open()), line_of(block.brace_token.span.close()));
        let lines = line_of(name.span())..=end;
        self.functions.push(Function { name: name.to_string(), lines, body: start..=end });
    }

    fn type_named(&mut self, name: &syn::Ident, attributes: &[syn::Attribute]) {
        // A type laid out for C mirrors somebody else's interface, and so does its name.
        if !attributes.iter().any(|attribute| is_list_with(attribute, "repr", "C")) {
            self.types.push(Named { name: name.to_string(), line: line_of(name.span()) });
        }
    }

    fn note_if_test(&mut self, attributes: &[syn::Attribute], span: Span) {
        let is_test = |attribute: &syn::Attribute| {
            attribute.path().segments.last().is_some_and(|last| last.ident == "test")
                || is_list_with(attribute, "cfg", "test")
        };
        if attributes.iter().any(is_test) {
            self.tests.push(line_of(span)..=span.end().line);
        }
    }
}

impl<'ast> Visit<'ast> for Outline {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig.ident, &item.block);
        self.note_if_test(&item.attrs, item.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig.ident, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig.ident, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.modules.push(Named { name: item.ident.to_string(), line: line_of(item.ident.span()) });
        self.note_if_test(&item.attrs, item.span());
        visit::visit_item_mod(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.type_named(&item.ident, &item.attrs);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.type_named(&item.ident, &item.attrs);
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.type_named(&item.ident, &item.attrs);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.type_named(&item.ident, &item.attrs);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.type_named(&item.ident, &item.attrs);
        visit::visit_item_trait(self, item);
    }
}

fn line_of(span: Span) -> usize {
    span.start().line.max(1)
}

/// Tells whether an attribute is `name(…)` with `word` as one of its words, nested ones too; what stands in
/// `not(…)` applies to other builds.
fn is_list_with(attribute: &syn::Attribute, name: &str, word: &str) -> bool {
    match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident(name) && has_word(list.tokens.clone(), word),
        _ => false,
    }
}

fn has_word(tokens: TokenStream, word: &str) -> bool {
    let mut negated = false;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if ident == word => return true,
            TokenTree::Ident(ident) => negated = ident == "not",
            TokenTree::Group(group) if !negated && has_word(group.stream(), word) => return true,
            _ => negated = false,
        }
    }
    false
}

fn collect_marks(tokens: TokenStream, marks: &mut Vec<(Mark, usize)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        let next = tokens.get(index + 1);
        match token {
            TokenTree::Ident(ident) => {
                // `fn sleep()` declares one, it doesn't call it.
                let is_declared = index > 0 && is_ident(&tokens[index - 1], "fn");
                if let Some(mark) = mark_of_word(&ident.to_string(), next).filter(|_| !is_declared) {
                    marks.push((mark, line_of(ident.span())));
                }
            }
            TokenTree::Punct(punct)
                if punct.as_char() == '#' && next.and_then(group_of).is_some_and(ignores) =>
            {
                marks.push((Mark::Ignore, line_of(punct.span())));
            }
            TokenTree::Group(group) => collect_marks(group.stream(), marks),
            _ => {}
        }
    }
}

fn mark_of_word(word: &str, next: Option<&TokenTree>) -> Option<Mark> {
    match (word, next?) {
        ("todo" | "unimplemented", TokenTree::Punct(punct)) if punct.as_char() == '!' => Some(Mark::Todo),
        ("sleep" | "sleep_ms" | "sleep_until" | "usleep" | "nanosleep", TokenTree::Group(group))
            if group.delimiter() == Delimiter::Parenthesis =>
        {
            Some(Mark::Sleep)
        }
        _ => None,
    }
}

/// Tells whether what stands in the brackets of an attribute is `ignore`, always or under a condition.
fn ignores(attribute: &Group) -> bool {
    let first = attribute.stream().into_iter().next();
    let is = |word: &str| first.as_ref().is_some_and(|token| is_ident(token, word));
    is("ignore") || (is("cfg_attr") && has_word(attribute.stream(), "ignore"))
}

fn group_of(token: &TokenTree) -> Option<&Group> {
    match token {
        TokenTree::Group(group) => Some(group),
        _ => None,
    }
}

fn is_ident(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline(text: &str) -> Outline {
        Outline::of(&File::new("a.rs", text)).unwrap()
    }

    fn names(named: &[Named]) -> Vec<&str> {
        named.iter().map(|named| named.name.as_str()).collect()
    }

    #[test]
    fn functions_are_found_wherever_they_stand() {
        let found = outline(
            "fn a() {\n}\nimpl X {\n  fn b(\n    &self,\n  ) {\n  }\n}\ntrait T { fn c() {} fn d(); }\n",
        );
        let lines: Vec<_> = found.functions.iter().map(|f| (f.name.as_str(), f.body.clone())).collect();
        assert_eq!(lines, [("a", 1..=2), ("b", 6..=7), ("c", 9..=9)]);
    }

    #[test]
    fn types_for_c_are_left_out() {
        let found = outline("struct A; enum B {} type C = u8; trait D {} #[repr(C)] struct PciInfo;");
        assert_eq!(names(&found.types), ["A", "B", "C", "D"]);
    }

    #[test]
    fn lines_of_tests_are_known() {
        let found =
            outline("fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\n#[tokio::test]\nfn c() {\n}\n");
        let lines: Vec<usize> = (1..=9).filter(|line| found.is_test(*line)).collect();
        assert_eq!(lines, [2, 3, 4, 5, 6, 7, 8]);
        assert!(!outline("#[cfg(not(test))]\nmod a {}\n").is_test(2));
    }

    #[test]
    fn marks_are_found_in_code_but_not_in_comments_or_strings() {
        let found = outline(
            "#[test]\n#[ignore = \"slow\"]\nfn a() {\n  assert!({ todo!() });\n  // todo!()\n  f(\"todo!()\");\n  thread::sleep(d);\n}\n",
        );
        assert_eq!(found.marks, [(Mark::Ignore, 2), (Mark::Todo, 4), (Mark::Sleep, 7)]);
    }

    #[test]
    fn a_conditional_ignore_is_one_and_a_like_named_one_is_not() {
        assert_eq!(outline("#[cfg_attr(miri, ignore)]\nfn a() {}").marks, [(Mark::Ignore, 1)]);
        assert_eq!(outline("#[serde(ignore)]\nstruct A;\nfn sleep() {}\n").marks, []);
    }

    #[test]
    fn the_innermost_function_around_a_line_is_found() {
        let found = outline("fn a() {\n  fn b() {\n    c();\n  }\n  d();\n}\n");
        assert_eq!(found.function_at(3).unwrap().name, "b");
        assert_eq!(found.function_at(5).unwrap().name, "a");
        assert!(found.function_at(9).is_none());
    }

    #[test]
    fn what_is_not_rust_is_named_by_its_line() {
        let finding = Outline::of(&File::new("a.rs", "fn a() {}\nfn {}\n")).unwrap_err();
        assert_eq!(finding.line, 2);
    }
}
