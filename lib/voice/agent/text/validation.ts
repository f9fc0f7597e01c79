import { TOOL_SURFACE } from './tools.ts';

/** Why a spoken summary does not replace the answer (contract 06 §7.2). */
export type SummaryFault =
  | 'empty_summary'
  | 'asked_for_run_id'
  | 'acknowledgement_not_summary'
  | 'short_acknowledgement'
  | 'no_answer_overlap';

/** Compares the provider's speech with the answer that it should deliver. */
export interface SummaryCheck {
  /**
   * Why a complete summary is rejected; null if it is accepted. `isExactSpeech`: the provider got the exact text and has
   * sent audio, so that a missing transcript is not a fault.
   */
  fault(summary: string, options?: { isExactSpeech?: boolean }): SummaryFault | null;
  /** True if the beginning of a summary is good enough to be played before its end. */
  mayCommit(beginning: string): boolean;
}

const MIN_EARLY = 40;
const MIN_EARLY_EVIDENCE = 2;
/** A summary that has not qualified by then is checked at its end, so that the total cost of its pieces is linear. */
const MAX_EARLY = 4096;
const MAX_SHORT = 80;
const MIN_WORD = 4;

const TOOL_NAMES = new RegExp(`\\brun[ _-]?ids?\\b|\\b(?:${TOOL_SURFACE.join('|')})\\b`);

/** Phrases that defer an answer, ask back, or mention the queue. No alternative can match across the whole text. */
const DEFERRALS = new RegExp(
  [
    '\\b(?:one|just a|give me a|in a|wait a|hang on a) (?:moment|second|minute|sec)\\b',
    '\\b(?:hold on|hang on|stand by|bear with me)\\b',
    '\\blet me (?:check|look|see|find|fetch|get|pull|take a look|verify|look into)\\b',
    "\\b(?:i'll|i will|i'm going to|i am going to|i'm about to|we'll|we will) (?:now |just |quickly |go and )?(?:look|check|fetch|report back|let you know|get back to you|get that|find out|update you|pull|tell you when)\\b",
    "\\b(?:i'm|i am) (?:still |now |currently )?(?:looking|checking|fetching|working on)\\b",
    "\\b(?:as soon as|once) (?:i have|i get|it is done|it's done|the result)\\b",
    '\\b(?:is|are|been|was) queued\\b',
    '\\b(?:in|to) the queue\\b',
    '\\b(?:still running|running in the background|already running)\\b',
    '\\b(?:do you have|do you want me to|would you like me to|could you (?:tell|give|provide|share|send)|can you (?:tell|give|provide|share|send)|please (?:provide|share|specify))\\b',
  ].join('|'),
  'g',
);
const SHORT_ACKNOWLEDGEMENT = /^(?:sure|ok|okay|got it|alright|all right|of course|certainly)\b/;
const CHECK = /\bcheck/;

const TOKEN = /[\p{L}\p{N}\p{M}]+/gu;
/** Scripts without spaces, whose words cannot be separated: their pairs of characters count. */
const UNSPACED = /^[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]+$/u;

/** Common words of four and more letters, which prove nothing. */
const STOP_WORDS = new Set(
  (
    'about above after again also another answer anything back been before being below between both came come could ' +
    'current does doing done down during each else even ever every from gave give given goes going gone good have having ' +
    'here into itself just keep kind know known last least less like look looks made make makes many maybe might more ' +
    'most much must need next none once only other ours over please really request result results right said same says ' +
    'seem seems shall should since some something still such sure take tell than thank thanks that their theirs them then ' +
    'there these they thing things this those though through today told under until upon user very want wants was well ' +
    'were what when where which while will with within without would yeah your yours yourself'
  ).split(' '),
);

/** Checks summaries of one answer. Linear in the length of both. */
export function createSummaryCheck(answer: string): SummaryCheck {
  const said = normalised(answer);
  const evidence = evidenceOf(said);

  /** Distinct words of the evidence in a text, counted up to `enough`. */
  function shared(text: string, enough: number): number {
    const found = new Set<string>();
    for (const word of wordsOf(text)) {
      if (evidence.has(word)) found.add(word);
      if (found.size >= enough) break;
    }
    return found.size;
  }

  function badPhrase(text: string): SummaryFault | null {
    if (TOOL_NAMES.test(text)) return 'asked_for_run_id';
    const isInAnswer = new Map<string, boolean>();
    for (const [phrase] of text.matchAll(DEFERRALS)) {
      if (!isInAnswer.has(phrase)) isInAnswer.set(phrase, said.includes(phrase));
      if (isInAnswer.get(phrase) === false) return 'acknowledgement_not_summary';
    }
    const isShort = text.length <= MAX_SHORT && SHORT_ACKNOWLEDGEMENT.test(text) && CHECK.test(text);
    return isShort ? 'short_acknowledgement' : null;
  }

  return {
    fault(summary, { isExactSpeech = false } = {}) {
      const text = normalised(summary);
      if (text === '') return isExactSpeech ? null : 'empty_summary';
      const bad = badPhrase(text);
      if (bad) return bad;
      return evidence.size > 0 && shared(text, 1) === 0 ? 'no_answer_overlap' : null;
    },

    mayCommit(beginning) {
      if (beginning.length > MAX_EARLY) return false;
      const text = normalised(beginning);
      if (text.length < MIN_EARLY || badPhrase(text)) return false;
      return shared(text, MIN_EARLY_EVIDENCE) >= MIN_EARLY_EVIDENCE;
    },
  };
}

/** In lower case and one line, with plain apostrophes. */
const normalised = (text: string): string =>
  text
    .normalize('NFKC')
    .toLowerCase()
    .replace(/[\u2018\u2019\u02bc]/g, "'")
    .replace(/\s+/g, ' ')
    .trim();

function* wordsOf(text: string): Generator<string> {
  for (const [token] of text.matchAll(TOKEN)) {
    if (!UNSPACED.test(token)) yield token;
    else for (let at = 0; at + 1 < token.length; at++) yield token.slice(at, at + 2);
  }
}

/** Tokens with a digit, and meaningful words. */
function evidenceOf(text: string): ReadonlySet<string> {
  const evidence = new Set<string>();
  for (const word of wordsOf(text)) {
    const counts = /\p{N}/u.test(word) || UNSPACED.test(word) || (word.length >= MIN_WORD && !STOP_WORDS.has(word));
    if (counts) evidence.add(word);
  }
  return evidence;
}
