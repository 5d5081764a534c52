use alloc::string::String;
use alloc::vec::Vec;
use std::format;

use super::*;

fn read(text: &str) -> Reading {
    Reading::of(text, None)
}

/// Returns the number of different units of a text.
fn units(text: &str) -> u64 {
    Seen::default().add(&read(text), false)
}

/// Returns the word with this number, of letters only.
fn word(number: u32) -> String {
    format!("{number:05}").bytes().map(|digit| char::from(b'a' + digit - b'0')).collect()
}

#[test]
fn a_text_said_again_with_other_numbers_times_or_ids_says_nothing_new() {
    let thanks: [fn(u32) -> String; 4] = [
        |n| format!("Thank you so much for all of your help! This is message {n}."),
        |n| format!("All is well and done at 12:{n:02}:{:02}, happy to help again.", n * 7 % 60),
        |n| format!("Request req-{:08x} is fine, thank you again for it.", n.wrapping_mul(0x9e37_79b9)),
        |n| format!("谢谢你，任务{n}已经完成，非常感谢你的帮助"),
    ];
    for text in thanks {
        let mut stall = Stall::default();
        let held = (0..40).find(|n| {
            let due = stall.message(n % 2, Some(1 - n % 2), &read(&text(*n)));
            matches!(due, Due::Hold(_))
        });
        assert!(held.is_some_and(|held| held <= 9), "{held:?}: {}", text(1));
    }
    // In a sentence of its own a number is new.
    let mut seen = Seen::default();
    assert_eq!(seen.add(&read("the answer to six is 42"), false), 6);
    assert_eq!(seen.add(&read("the answer to six is 43"), false), 0);
    assert_eq!(seen.add(&read("six is 43, the answer is 43"), false), 1, "is 43");
    assert_eq!(seen.add(&read("the answer to six is 44"), true), 1, "parts of a work in a row");
    // Numbers that stand alone are what is said.
    assert_eq!(["50", "75", "62.5"].map(|number| seen.add(&read(number), false)), [1, 1, 2]);
    let first = read("page 5 of 7");
    assert_eq!(Stall::bytes_of(&first), FIXED_BYTES + 2 * 5, "page, page 5, of, of 7, and the text's shape");
}

#[test]
fn a_unit_is_a_word_a_number_with_its_word_or_a_line_of_code() {
    assert_eq!(units(""), 0);
    assert_eq!(units("Red, red; RED! green"), 2);
    assert_eq!(units("snake_case stays one"), 3);
    assert_eq!(units("line 5, line 6"), 3, "line, line 5, line 6");
    assert_eq!(units("page 5, line 5"), 4, "a number belongs to the word before it");
    assert_eq!(units("release v2 of v2"), 4, "a short run with a digit does, too");
    assert_eq!(units("sha256 of sha256"), 2, "a longer one doesn't");
    assert_eq!(units("```py\nx = 1\n```"), 3 + 2, "py, x and x 1 are words; `py` is too short for a line of code");
    assert_eq!(units("```\na=b;\n  a=b;\n"), 2 + 2, "the same line with other spaces, in a fence that doesn't end");
    assert_eq!(units("a `b` c ``d`` e"), 5, "one or two backticks are no fence");
}

#[test]
fn scripts_without_spaces_count_by_pairs_of_characters() {
    assert_eq!(units("今天天气很好"), 5);
    assert_eq!(units("天气很好"), 3);
    assert_eq!(units("東京タワーへ行きました"), 10);
    assert_eq!(units("ສະບາຍດີ"), units("ສະບາຍດີ ສະບາຍດີ"));
    assert_eq!(units("กก กก ข"), 2, "a pair, and one character alone");
    assert_eq!(units("ต้องการ"), 5, "the tone mark parts no pair: ตอ อง งก กา าร");
    assert_eq!(units("第3章"), 3, "第, 第 3, 章");
    assert_eq!(units("API を使う"), 1 + 2, "Latin words stay words");
    assert_eq!(units("안녕 하세요"), 2, "Korean has spaces");
}

#[test]
fn a_repeated_answer_in_chinese_japanese_or_thai_is_held() {
    for (ask, answer) in [
        ("请再检查一次构建为什么失败，并告诉我原因", "我又检查了一次，构建还是失败，原因不明"),
        ("もう一度ビルドを確認して、失敗の原因を教えてください", "確認しましたが、まだ失敗しています。原因は不明です"),
        ("กรุณาตรวจสอบบิลด์อีกครั้งและบอกสาเหตุ", "ตรวจสอบแล้ว บิลด์ยังล้มเหลวอยู่ ไม่ทราบสาเหตุ"),
    ] {
        let mut stall = Stall::default();
        let mut said = |from: u32, text: &str| stall.message(from, Some(1 - from), &read(text));
        let verdicts: Vec<Due> = (0..5).map(|i| said(i % 2, if i % 2 == 0 { ask } else { answer })).collect();
        assert_eq!(verdicts[..4], [Due::Nothing; 4], "{ask}");
        assert_eq!(verdicts[4], Due::Hold(StallCause::Stuck), "{ask}");
    }
}

#[test]
fn a_talk_that_says_new_things_in_chinese_goes_on() {
    let topics = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳云腾致雨露结为霜金生丽水玉出昆冈剑号巨阙珠称夜光果珍李柰菜重芥姜海咸河淡鳞潜羽翔";
    let topics: Vec<char> = topics.chars().collect();
    let mut stall = Stall::default();
    for (from, said) in (0..).zip(topics.chunks(8)) {
        let said: String = said.iter().collect();
        assert_eq!(stall.message(from % 2, Some(1 - from % 2), &read(&said)), Due::Nothing, "{said}");
    }
}

#[test]
fn the_sixth_message_is_the_first_that_is_warned_of_and_two_more_hold() {
    let mut stall = Stall::default();
    let long = "word ".repeat(400);
    let mut said = Vec::new();
    for i in 0..9_u32 {
        // Other words in another order, so that no message is the same as the last one of its speaker.
        let text = format!("{long}{}", ["one", "two"][i as usize / 2 % 2]);
        said.push(stall.message(i % 2, Some(1 - i % 2), &read(&text)));
    }
    assert_eq!(said[..5], [Due::Nothing; 5]);
    assert_eq!(said[5], Due::Warning);
    assert_eq!(said[6..], [Due::Hold(StallCause::Dry); 3]);
    let curve = stall.curve();
    assert_eq!((curve.messages, curve.units, curve.context), (9, 3, 9 * 500));
    assert_eq!(curve.read_again, (2..=9).map(|n| n * 500).sum::<u64>());
}

#[test]
fn new_words_pay_for_what_is_read_again() {
    let mut stall = Stall::default();
    for i in 0..200_u32 {
        let text = (0..40).map(|n| word(40 * i + n)).collect::<Vec<_>>().join(" ");
        // 40 new units pay for 8,000 tokens.
        let due = stall.message(i % 2, Some(1 - i % 2), &read(&text));
        if stall.curve().context < 8_000 {
            assert_eq!(due, Due::Nothing, "message {i}");
        }
    }
    assert!(stall.curve().context > 8_000, "it went far enough to matter");
}

#[test]
fn the_same_message_three_times_is_stuck_unless_much_was_said_between() {
    let repeated = "please run it again";
    let play = |between: usize| {
        let mut stall = Stall::default();
        let mut last = Due::Nothing;
        for i in 0..3_usize {
            last = stall.message(0, Some(1), &read(repeated));
            let news: Vec<String> = (0..between).map(|n| word((100 * i + n) as u32)).collect();
            stall.message(1, Some(0), &read(&news.join(" ")));
        }
        last
    };
    assert_eq!(play(22), Due::Hold(StallCause::Stuck), "44 new units in two answers");
    assert_eq!(play(23), Due::Nothing, "46 new units");
    let mut short = Stall::default();
    for _ in 0..3 {
        assert_eq!(short.message(0, Some(1), &read("ok, done")), Due::Nothing, "two words may be said again");
        short.message(1, Some(0), &read(&"fine ".repeat(3)));
    }
}

#[test]
fn what_is_passed_on_to_a_third_party_costs_only_its_tokens() {
    let mut stall = Stall::default();
    stall.message(0, Some(1), &read("the plan is to begin at noon"));
    stall.message(1, Some(2), &read("The plan is  to begin at noon"));
    assert_eq!(stall.curve().messages, 1);
    assert_eq!(stall.curve().context, 14);
    stall.message(2, Some(1), &read("the plan is to begin at noon"));
    assert_eq!(stall.curve().messages, 2, "back to its author it counts");
}

#[test]
fn the_list_becomes_a_bitmap_and_a_bitmap_that_is_nearly_full_is_cleared() {
    let mut stall = Stall::default();
    assert_eq!(stall.bytes(), FIXED_BYTES);
    let mut next = 0_u32;
    let mut most = 0;
    let (mut maps, mut cleared) = (0, 0);
    for i in 0..400_u32 {
        let text: Vec<String> = (0..400).map(|n| format!("unit{}", next + n)).collect();
        next += 400;
        let before = stall.seen.set();
        stall.message(i % 2, Some(1 - i % 2), &read(&text.join(" ")));
        maps += u32::from(matches!(stall.seen, Seen::Map { .. }));
        cleared += u32::from(stall.seen.set() < before);
        most = most.max(stall.bytes());
    }
    assert!(maps > 300 && cleared >= 1, "{maps} {cleared}");
    assert_eq!(most, FIXED_BYTES + 8_192, "never more than the bitmap");
    // 400 messages of 400 units each: what the full bitmap hides is made up for.
    let units = stall.curve().units;
    assert!((150_000..170_000).contains(&units), "{units}");
}

#[test]
fn a_snapshot_restores_the_same_verdicts() {
    let text = |i: u32| format!("{} {}", "again and again ".repeat(20), i / 4);
    for cut in [1, 5, 20, 60] {
        let mut whole = Stall::default();
        let mut restored = Stall::default();
        for i in 0..80_u32 {
            let (from, to) = (i % 2, Some(1 - i % 2));
            if i == cut {
                let bytes = postcard::to_allocvec(&restored).unwrap();
                restored = postcard::from_bytes(&bytes).unwrap();
            }
            assert_eq!(whole.message(from, to, &read(&text(i))), restored.message(from, to, &read(&text(i))));
        }
        assert_eq!(whole, restored);
    }
}

#[test]
fn a_text_is_read_to_a_length_and_counted_whole() {
    let beyond = format!("{} tail", "a ".repeat(READ));
    let reading = read(&beyond);
    assert_eq!(reading.units().0.len(), 1, "`tail` is beyond what is read");
    assert_eq!(reading.tokens(), beyond.len() as u64 / 4);
    assert_eq!(read("").tokens(), 1);
    let both = Reading::of("see", Some("{\"see\":\"also\"}"));
    assert_eq!((both.words(), both.units().0.len()), (3, 2), "what stands beside it counts, too");
    let umlaut = "Ä".repeat(9_000);
    assert_eq!(read(&umlaut).units().0.len(), 1);
}

/// More than the characters that are read.
const READ: usize = 4_001;

proptest::proptest! {
    /// Lower-casing on the fly and the short way for ASCII change nothing.
    #[test]
    fn the_short_way_for_ascii_reads_the_same(text in "[ -~\n]{0,300}") {
        let ascii = read(&text);
        let other = read(&format!("{text} é"));
        let without = read("é");
        let mut seen = Seen::default();
        seen.add(&ascii, false);
        let all = Seen::default().add(&other, false);
        // What an open fence makes of the last line differs; its words don't.
        let words = other.units().0.len() as u64;
        proptest::prop_assert!(words <= ascii.units().0.len() as u64 + 1);
        proptest::prop_assert!(all >= words);
        proptest::prop_assert!(without.words() == 1 && other.words() == ascii.words() + 1);
    }
}
