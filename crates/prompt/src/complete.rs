//! What a word that was begun may become.

/// Names the words that may stand behind a text: called with the words before the one that is
/// completed, and with what each candidate is to be told to.
pub type Words<'w> = dyn Fn(&str, &mut dyn FnMut(&str)) + 'w;

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// Nothing begins like that.
    Nothing,
    /// One word does.
    One,
    /// Several do.
    Several,
}

/// The text before the word that ends with it, and the word.
pub(crate) fn last_word(text: &str) -> (&str, &str) {
    text.split_at(text.rfind(' ').map_or(0, |blank| blank + 1))
}

/// How many words begin with the last word of `text`, and what all of them have behind it: `each`
/// is told the characters.
pub(crate) fn complete(text: &str, words: &Words<'_>, mut each: impl FnMut(u8)) -> Found {
    let (before, begun) = last_word(text);
    // The first of them, up to where another one goes on otherwise. A word of more characters than
    // a line has room for is completed as far as there is room.
    let mut shared = [0u8; crate::line::ROOM];
    let (mut len, mut count) = (0, 0);
    words(before, &mut |word| {
        let Some(rest) = word.strip_prefix(begun) else { return };
        count += 1;
        if count == 1 {
            len = rest.len().min(shared.len());
            shared[..len].copy_from_slice(&rest.as_bytes()[..len]);
        } else {
            let same = rest.bytes().zip(&shared[..len]).take_while(|(a, b)| a == *b);
            len = same.count();
        }
    });
    shared[..len].iter().for_each(|byte| each(*byte));
    match count {
        0 => Found::Nothing,
        1 => Found::One,
        _ => Found::Several,
    }
}
