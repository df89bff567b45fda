//! Character cards in the text chunks of a PNG. Pixels are neither decoded nor encoded: a reader of chunks is enough,
//! and the picture stays the same byte for byte.

use std::io::Read as _;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use flate2::{Crc, read::ZlibDecoder};
use serde_json::Value;

use super::report::CardError;

const SIGNATURE: &[u8; 8] = b"\x89PNG\r\n\x1a\n";
/// Length, type and checksum of a chunk.
const CHUNK_FRAME: usize = 12;
/// Most bytes of a text that was compressed.
const MAX_TEXT_BYTES: usize = 16 * 1024 * 1024;
/// The chunks with cards, the newest specification first.
const KEYWORDS: [&str; 2] = ["ccv3", "chara"];

/// Programs differ in the padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// True if the bytes begin as a PNG.
pub fn is_png(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE)
}

/// The JSON of the card in a PNG, from the chunk `ccv3`, otherwise from the chunk `chara`.
///
/// # Errors
/// A damaged PNG, a PNG without a card, a text that is no base64, or a compressed text over the limit.
pub fn read_card_json(png: &[u8]) -> Result<Vec<u8>, CardError> {
    let mut card_chunks: [Option<Chunk<'_>>; 2] = [None; 2];
    for chunk in read_chunks(png)? {
        if let Some(nth) = chunk.card_keyword() {
            card_chunks[nth].get_or_insert(chunk);
        }
    }
    let mut chunks = KEYWORDS.into_iter().zip(card_chunks);
    let newest = chunks.find_map(|(keyword, chunk)| Some((keyword, chunk?)));
    let (keyword, chunk) = newest.ok_or(CardError::NoCardInPng)?;
    if !chunk.is_whole() {
        return Err(CardError::DamagedPng("the checksum of the card is wrong"));
    }
    let mut text = chunk.text(keyword)?;
    text.retain(|byte| !byte.is_ascii_whitespace());
    BASE64.decode(text).map_err(|_| CardError::BadBase64 { chunk: keyword })
}

/// The PNG with the card of V3 inside, in place of a card that the PNG had.
///
/// # Errors
/// A damaged PNG, and a card of more than 2 GiB.
pub fn write_png_card(png: &[u8], card: &Value) -> Result<Vec<u8>, CardError> {
    let chunks = read_chunks(png)?;
    let mut data = [KEYWORDS[0].as_bytes(), b"\0"].concat();
    data.extend(BASE64.encode(card.to_string()).into_bytes());
    let too_large = CardError::TooLarge {
        chunk: KEYWORDS[0],
        most: 0x7fff_ffff,
    };
    let length = i32::try_from(data.len()).map_err(|_| too_large)?;
    let mut output = Vec::with_capacity(png.len() + data.len() + CHUNK_FRAME);
    output.extend_from_slice(SIGNATURE);
    for chunk in chunks {
        if chunk.kind == b"IEND" {
            output.extend_from_slice(&length.to_be_bytes());
            output.extend_from_slice(b"tEXt");
            output.extend_from_slice(&data);
            output.extend_from_slice(&checksum(b"tEXt", &data).to_be_bytes());
        }
        if chunk.card_keyword().is_none() {
            output.extend_from_slice(chunk.framed);
        }
    }
    Ok(output)
}

#[derive(Debug, Clone, Copy)]
struct Chunk<'a> {
    kind: &'a [u8],
    data: &'a [u8],
    checksum: &'a [u8],
    /// The chunk with its length and checksum.
    framed: &'a [u8],
}

impl<'a> Chunk<'a> {
    /// The position in [`KEYWORDS`], if the chunk is the text of a card.
    fn card_keyword(&self) -> Option<usize> {
        if !matches!(self.kind, b"tEXt" | b"zTXt" | b"iTXt") {
            return None;
        }
        let (keyword, _) = split_at_zero(self.data)?;
        let mut names = KEYWORDS.iter();
        names.position(|name| name.as_bytes().eq_ignore_ascii_case(keyword))
    }

    fn is_whole(&self) -> bool {
        checksum(self.kind, self.data).to_be_bytes() == self.checksum
    }

    /// The text after the keyword.
    fn text(&self, keyword: &'static str) -> Result<Vec<u8>, CardError> {
        let damaged = CardError::DamagedPng("the text of the card ends early");
        let (_, rest) = split_at_zero(self.data).ok_or_else(|| damaged.clone())?;
        let (is_compressed, text) = match self.kind {
            b"tEXt" => (false, Some(rest)),
            b"zTXt" => (true, rest.get(1..)),
            // Flag, method, language, and the keyword in this language.
            _ => {
                let names = rest.get(2..).and_then(split_at_zero);
                let text = names.and_then(|(_, rest)| split_at_zero(rest));
                (rest.first() == Some(&1), text.map(|(_, text)| text))
            }
        };
        let text: &'a [u8] = text.ok_or(damaged)?;
        if is_compressed {
            inflate(text, keyword)
        } else {
            Ok(text.to_vec())
        }
    }
}

fn inflate(compressed: &[u8], chunk: &'static str) -> Result<Vec<u8>, CardError> {
    let mut text = Vec::new();
    let max_bytes = MAX_TEXT_BYTES;
    let limit = u64::try_from(max_bytes + 1).unwrap_or(u64::MAX);
    let inflated = ZlibDecoder::new(compressed).take(limit).read_to_end(&mut text);
    inflated.map_err(|_| CardError::DamagedPng("the compressed text of the card is broken"))?;
    if text.len() > max_bytes {
        return Err(CardError::TooLarge { chunk, most: max_bytes });
    }
    Ok(text)
}

/// The chunks up to the end of the picture. Bytes after the end do not count.
fn read_chunks(png: &[u8]) -> Result<Vec<Chunk<'_>>, CardError> {
    let early = || CardError::DamagedPng("the file ends early");
    let mut rest = png
        .strip_prefix(SIGNATURE)
        .ok_or(CardError::DamagedPng("the file does not begin as a PNG"))?;
    let mut chunks: Vec<Chunk<'_>> = Vec::new();
    loop {
        let (length, after) = rest.split_first_chunk().ok_or_else(early)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| early())?;
        let (kind, after) = after.split_at_checked(4).ok_or_else(early)?;
        let (data, after) = after.split_at_checked(length).ok_or_else(early)?;
        let (checksum, after) = after.split_at_checked(4).ok_or_else(early)?;
        if chunks.is_empty() && kind != b"IHDR" {
            return Err(CardError::DamagedPng("the header of the picture is missing"));
        }
        chunks.push(Chunk {
            kind,
            data,
            checksum,
            framed: &rest[..length + CHUNK_FRAME],
        });
        if kind == b"IEND" {
            return Ok(chunks);
        }
        rest = after;
    }
}

fn split_at_zero(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let index = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..index], &bytes[index + 1..]))
}

fn checksum(kind: &[u8], data: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(kind);
    crc.update(data);
    crc.sum()
}
