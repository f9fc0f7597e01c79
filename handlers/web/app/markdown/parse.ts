import { Lexer, type Token, Tokenizer, type Tokens } from 'marked';
import { findReferences, type Reference } from '../media/references.ts';

/** A part of a line. Nothing else reaches the page: HTML written by a model is text (contract 10 §3). */
export type Inline =
  | string
  | { kind: 'strong' | 'em' | 'del'; children: readonly Inline[] }
  | { kind: 'code'; text: string }
  | { kind: 'link'; href: string; children: readonly Inline[] }
  | { kind: 'break' }
  | { kind: 'file'; reference: Reference };

export interface ListItem {
  /** In a task list, true if the task is done; null in other lists. */
  isDone: boolean | null;
  blocks: readonly Block[];
}

export interface Table {
  kind: 'table';
  align: readonly ('left' | 'center' | 'right' | null)[];
  head: readonly (readonly Inline[])[];
  rows: readonly (readonly (readonly Inline[])[])[];
}

export interface List {
  kind: 'list';
  /** Number of the first item; null in an unnumbered list. */
  start: number | null;
  items: readonly ListItem[];
}

export interface CodeBlock {
  kind: 'code';
  language: string;
  text: string;
}

/** `tight` is a paragraph of a list without space between its items. */
export type Block =
  | { kind: 'paragraph' | 'tight'; children: readonly Inline[] }
  | { kind: 'heading'; depth: number; children: readonly Inline[] }
  | { kind: 'quote'; blocks: readonly Block[] }
  | { kind: 'plain'; text: string }
  | { kind: 'rule' }
  | CodeBlock
  | List
  | Table;

/** Characters and lines that are parsed at once. A longer paragraph is split. */
const MAX_PIECE = 4 * 1024;
const MAX_LINES = 200;
/** Characters of a text that are parsed as Markdown; the rest is shown as plain text. */
const MAX_MARKDOWN = 160 * 1024;
/** Items of a list, or rows of a table, per block: a longer one is rendered as several. */
const MAX_ROWS = 100;
const MAX_COLUMNS = 40;
/** Maximum blocks of a text; the rest is shown as plain text, like the text after `MAX_MARKDOWN`. */
const MAX_BLOCKS = 2000;
/** Maximum nesting of lists, quotes and emphasis; deeper ones stay text. */
const MAX_DEPTH = 8;
/**
 * Characters within which emphasis has to end, and maximum marks and links in a piece, since each end has to be searched
 * for.
 */
const MAX_EMPHASIS = 400;
const MAX_MARKS = 300;

/** A paragraph that may be the number of another item, whose dot has not arrived. */
const BARE_NUMBER = /^ {0,3}\d{1,9}$/;
/** A line that begins a block of code at the left edge, outside of lists and quotes. */
const FENCE = /^(`{3,}|~{3,})([^\n`]*)(?:\n|$)/;
const MANY_LINES = new RegExp(`^(?:[^\\n]*\\n){${MAX_LINES}}`);
const NEXT_FENCE = /\n(?=```|~~~)/;
/** Dollars do not enclose a formula if they are money: `$5 and $6`. */
const MATH =
  /\$\$(?:[^$\n]|\n(?!\s*\n)){1,500}?\$\$|\\\[(?:(?!\\\[)[^\n]|\n(?!\s*\n)){1,500}?\\\]|\\\((?:(?!\\\()[^\n]){1,200}?\\\)|(?<![\w$\\])\$(?![\s$])[^$\n`]{1,200}?(?<![\s\\])\$(?![\w$])/g;
/** Characters of the private use area that stand for parts hidden from the parser. */
const HELD = /\uE000(\d{1,6})\uE001/g;
const PRIVATE = /[\uE000\uE001]/g;
/** Controls that reverse text, and so make it look like another (Trojan Source, CVE-2021-42574). */
const BIDI = /[\u202A-\u202E\u2066-\u2069]/g;

/** The tokenizer of marked with bounds: no input may overflow the stack or take quadratic time. */
class BoundedTokenizer extends Tokenizer {
  #depth = 0;
  #marks = 0;

  #nested<T>(read: () => T): T | undefined {
    if (this.#depth >= MAX_DEPTH || this.#marks >= MAX_MARKS) return undefined;
    this.#depth++;
    try {
      return read();
    } finally {
      this.#depth--;
    }
  }

  override blockquote(src: string): Tokens.Blockquote | undefined {
    return this.#nested(() => super.blockquote(src));
  }

  override list(src: string): Tokens.List | undefined {
    return this.#nested(() => super.list(src));
  }

  /** Each of these is tried at every position of a line. */
  #mark<T>(src: string, marks: string, read: () => T): T | undefined {
    if (!marks.includes(src.charAt(0))) return undefined;
    this.#marks++;
    return this.#nested(read);
  }

  override link(src: string): Tokens.Link | Tokens.Image | undefined {
    return this.#mark(src, '![', () => super.link(src));
  }

  override emStrong(src: string, masked: string, before?: string): Tokens.Em | Tokens.Strong | undefined {
    const near = nearEnd(src, masked);
    return this.#mark(src, '*_', () => super.emStrong(near.src, near.masked, before));
  }

  override del(src: string, masked: string, before?: string): Tokens.Del | undefined {
    const near = nearEnd(src, masked);
    return this.#mark(src, '~', () => super.del(near.src, near.masked, before));
  }

  override url(src: string): Tokens.Link | undefined {
    if (this.#marks >= MAX_MARKS) return undefined;
    const link = super.url(src);
    if (link) this.#marks++;
    return link;
  }

  /** Link definitions are not supported, so that no later block depends on an earlier one. */
  override def(): undefined {
    return undefined;
  }
}

/** The rest of a line and its masked whole, cut to the reach of emphasis. */
function nearEnd(src: string, masked: string): { src: string; masked: string } {
  if (src.length <= MAX_EMPHASIS) return { src, masked };
  const start = masked.length - src.length;
  return { src: src.slice(0, MAX_EMPHASIS), masked: masked.slice(Math.max(0, start - 64), start + MAX_EMPHASIS) };
}

/**
 * A piece of Markdown with placeholders for files and formulas, whose underscores and backslashes the parser would
 * interpret.
 */
interface Held {
  text: string;
  /** The replaced parts, by number. */
  parts: readonly (string | Reference)[];
  /** The original text. */
  restore(part: string): string;
}

/** `isWhole`: true if no more text follows. */
function hold(source: string, isWhole: boolean): Held {
  const parts: (string | Reference)[] = [];
  const sources: string[] = [];
  const replace = (written: string, part: string | Reference) => {
    sources.push(written);
    return `\uE000${parts.push(part) - 1}\uE001`;
  };
  let text = '';
  let end = 0;
  const clean = source.replace(PRIVATE, '\uFFFD');
  for (const { index, length, reference } of findReferences(clean, isWhole)) {
    text += clean.slice(end, index) + replace(clean.slice(index, index + length), reference);
    end = index + length;
  }
  text += clean.slice(end);
  text = text.replace(MATH, (formula) => (formula.includes('\uE000') ? formula : replace(formula, formula)));
  return { text, parts, restore: (part) => part.replace(HELD, (_, index: string) => sources[Number(index)] ?? '') };
}

/** The named entities that agents write, besides numeric ones. */
const ENTITIES: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00A0' };

const decode = (text: string): string =>
  text.replace(/&(?:(amp|lt|gt|quot|apos|nbsp)|#(\d{1,7})|#[xX]([\da-fA-F]{1,6}));/g, (written, name, decimal, hex) => {
    if (name) return ENTITIES[name] as string;
    const code = decimal ? Number(decimal) : Number.parseInt(hex, 16);
    return code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code < 0xe000) ? String.fromCodePoint(code) : written;
  });

/** An address that a link may have; undefined for every other. */
export function safeAddress(address: string): string | undefined {
  if (!/^(?:https?:\/\/|mailto:)[^\s\p{Cc}]+$/iu.test(address)) return undefined;
  const url = URL.canParse(address) ? new URL(address) : undefined;
  return url && ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : undefined;
}

/** Turns the tokens of a piece into blocks, and unknown ones into text. */
function reader({ parts, restore }: Held) {
  const written = (text: string): Inline[] => {
    const inlines: Inline[] = [];
    for (const [index, part] of text.split(HELD).entries()) {
      const held = index % 2 === 1 ? parts[Number(part)] : part.replace(BIDI, '');
      if (held === undefined || held === '') continue;
      inlines.push(typeof held === 'string' ? held : { kind: 'file', reference: held });
    }
    return inlines;
  };

  function linked({ raw, href, tokens }: Tokens.Link | Tokens.Image): Inline[] {
    const address = safeAddress(decode(restore(href)));
    return address === undefined ? written(raw) : [{ kind: 'link', href: address, children: inline(tokens) }];
  }

  function inlineOf(token: Token): Inline[] {
    switch (token.type) {
      case 'strong':
      case 'em':
      case 'del':
        return [{ kind: token.type, children: inline(token.tokens) }];
      case 'codespan':
        return [{ kind: 'code', text: restore((token as Tokens.Codespan).text) }];
      case 'link':
      case 'image':
        return linked(token as Tokens.Link | Tokens.Image);
      case 'br':
        return [{ kind: 'break' }];
      case 'checkbox':
        return [];
      case 'text':
        return token.tokens ? inline(token.tokens) : written(decode((token as Tokens.Text).text));
      case 'escape':
        return written((token as Tokens.Escape).text);
      default:
        return written(token.raw);
    }
  }

  const inline = (tokens: readonly Token[] = []): Inline[] => tokens.flatMap(inlineOf);

  const itemOf = ({ task, checked, tokens }: Tokens.ListItem): ListItem => ({
    isDone: task ? checked === true : null,
    blocks: blocksOf(tokens),
  });

  const rowOf = (cells: readonly Tokens.TableCell[]) => cells.map(({ tokens }) => inline(tokens));

  function blockOf(token: Token): Block[] {
    switch (token.type) {
      case 'space':
      case 'checkbox':
        return [];
      case 'paragraph':
        return [{ kind: 'paragraph', children: inline(token.tokens) }];
      case 'text':
        return [{ kind: 'tight', children: inlineOf(token) }];
      case 'heading':
        return [{ kind: 'heading', depth: (token as Tokens.Heading).depth, children: inline(token.tokens) }];
      case 'blockquote':
        return [{ kind: 'quote', blocks: blocksOf(token.tokens) }];
      case 'list': {
        const { start, items } = token as Tokens.List;
        return [{ kind: 'list', start: start === '' ? null : start, items: items.map(itemOf) }];
      }
      case 'table': {
        const { align, header, rows } = token as Tokens.Table;
        if (header.length > MAX_COLUMNS) break;
        return [{ kind: 'table', align, head: rowOf(header), rows: rows.map(rowOf) }];
      }
      case 'code': {
        const { lang = '', text } = token as Tokens.Code;
        return [{ kind: 'code', language: languageOf(restore(lang)), text: restore(text) }];
      }
      case 'hr':
        return [{ kind: 'rule' }];
    }
    return [{ kind: 'plain', text: restore(token.raw).trim() }];
  }

  const blocksOf = (tokens: readonly Token[] = []): Block[] => tokens.flatMap(blockOf);
  return blocksOf;
}

/** The first word after a fence, as the name of a language. */
const languageOf = (info: string): string => info.trim().split(/\s/, 1)[0]?.slice(0, 30) ?? '';

/** Splits long lists and tables into several. */
function split(block: Block): Block[] {
  if (block.kind === 'list' && block.items.length > MAX_ROWS) {
    const { start, items } = block;
    return chunks(items).map((some, index) => ({
      kind: 'list',
      start: start === null ? null : start + index * MAX_ROWS,
      items: some,
    }));
  }
  if (block.kind !== 'table' || block.rows.length <= MAX_ROWS) return [block];
  return chunks(block.rows).map((rows) => ({ ...block, rows }));
}

function chunks<T>(all: readonly T[]): T[][] {
  const count = Math.ceil(all.length / MAX_ROWS);
  return Array.from({ length: count }, (_, index) => all.slice(index * MAX_ROWS, (index + 1) * MAX_ROWS));
}

/** Joins two parts of one list or table if the result is not too long. */
function join(before: Block | undefined, after: Block): Block[] {
  if (before?.kind === 'list' && after.kind === 'list' && before.items.length + after.items.length <= MAX_ROWS) {
    return [{ ...before, items: [...before.items, ...after.items] }];
  }
  if (before?.kind === 'table' && after.kind === 'table' && before.rows.length + after.rows.length <= MAX_ROWS) {
    return [{ ...before, rows: [...before.rows, ...after.rows] }];
  }
  return before ? [before, after] : [after];
}

/**
 * Parses a growing text in steps of a few milliseconds. Complete blocks are never parsed again, so that an arriving answer
 * of any length costs as much as its last block.
 */
export function createMarkdown() {
  let text = '';
  let isWhole = false;
  /** Start of the next block: the start of a line, unless one was too long. */
  let at = 0;
  let done: readonly Block[] = [];
  /** The block at `at`, as far as it has arrived. */
  let tail: readonly Block[] = [];
  /** The list or table that continues at `at`. Its `prefix` is a table's head, without which rows are not a table. */
  let open: { kind: 'list' | 'table'; prefix: string } | null = null;
  /** Characters shown of the code at `at`, and the position from which its end is searched. */
  let shown = 0;
  let searched = 0;
  let isRead = true;

  function add(blocks: readonly Block[]): void {
    const [first, ...rest] = blocks.flatMap(split);
    if (!first) return;
    done = open ? [...done.slice(0, -1), ...join(done.at(-1), first), ...rest] : [...done, first, ...rest];
  }

  /** Continues after the added part. */
  function advance(to: number): void {
    at = to;
    tail = [];
    open = null;
    shown = searched = 0;
  }

  function stepCode([line, marks = '', info = '']: RegExpExecArray): void {
    const start = at + line.length;
    const from = Math.max(start, searched);
    const end = new RegExp(`^ {0,3}${marks[0]}{${marks.length},}[ \\t]*$`, 'm').exec(text.slice(from));
    // The last line may contain the beginning of the end mark.
    searched = Math.max(start, text.lastIndexOf('\n') + 1);
    const bodyEnd = end ? from + end.index : text.length;
    const body = text.slice(start, Math.min(bodyEnd, start + shown + MAX_PIECE));
    const isCut = start + body.length < bodyEnd;
    tail = [{ kind: 'code', language: languageOf(info), text: body.replace(/\n$/, '') }];
    shown = body.length;
    isRead = !isCut && !end && !isWhole;
    if (isCut || isRead) return;
    add(tail);
    advance(end ? Math.min(text.length, bodyEnd + end[0].length + 1) : text.length);
  }

  /** End of the piece that starts at `at`, and whether its last block continues there. */
  function findEnd(): { end: number; isOpen: boolean } {
    const limit = at + (MANY_LINES.exec(text.slice(at, at + MAX_PIECE))?.[0].length ?? MAX_PIECE);
    const whole = text.slice(at, limit);
    const fence = NEXT_FENCE.exec(whole);
    const piece = fence ? whole.slice(0, fence.index) : whole;
    const picture = /!\[[^[\]\n]{0,300}\]\( {0,2}<?data:image\/[^)]*$/.exec(piece);
    if (picture) {
      const close = text.indexOf(')', at + piece.length);
      if (close >= 0) return { end: close + 1, isOpen: close + 1 < text.length || !isWhole };
      if (!isWhole) return { end: at + picture.index, isOpen: true };
    }
    if (fence) return { end: at + fence.index + 1, isOpen: false };
    if (text.length <= limit) return { end: text.length, isOpen: !isWhole };
    const newline = text.lastIndexOf('\n', limit - 1);
    const space = newline > at ? newline : text.lastIndexOf(' ', limit - 1);
    const cut = space > at ? space + 1 : limit;
    return { end: isHighSurrogate(text.charCodeAt(cut - 1)) ? cut - 1 : cut, isOpen: true };
  }

  function stepProse(): void {
    const { end, isOpen } = findEnd();
    const isLast = end === text.length || end === at;
    const held = hold((open?.prefix ?? '') + text.slice(at, end), !isOpen || !isLast);
    const tokens = new Lexer({ gfm: true, tokenizer: new BoundedTokenizer() }).lex(held.text);
    const blocksOf = reader(held);
    isRead = isLast && isOpen;
    const lastIndex = findLast(tokens, isRead);
    const last = tokens[lastIndex];
    if (open && tokens[0]?.type !== open.kind) {
      // Parsed again without the head of a table that has ended.
      open = null;
      isRead = false;
      return;
    }
    if (!isOpen || (!last && !isLast)) {
      add(blocksOf(tokens));
      advance(end);
      return;
    }
    if (!last) {
      tail = [];
      return;
    }
    const lengthOf = (some: readonly Token[]) => held.restore(some.map(({ raw }) => raw).join('')).length;
    const settled = tokens.slice(0, lastIndex);
    const before = at;
    if (settled.length > 0) {
      add(blocksOf(settled));
      advance(at - (open?.prefix ?? '').length + lengthOf(settled));
    }
    settle(last, held, blocksOf);
    tail = [...tail, ...blocksOf(tokens.slice(lastIndex + 1))];
    if (at > before || isLast) return;
    // A single block fills the whole piece.
    add(tail);
    advance(end);
  }

  /** Adds the complete items of a list, or rows of a table, and leaves the last one in `tail`. */
  function settle(last: Token, { restore }: Held, blocksOf: (tokens: readonly Token[]) => Block[]): void {
    if (last.type === 'list') {
      const list = last as Tokens.List;
      const items = list.items.slice(0, -1);
      if (items.length > 0) add(blocksOf([{ ...list, items }]));
      const start = list.start === '' ? '' : list.start + items.length;
      tail = blocksOf([{ ...list, start, items: list.items.slice(-1) }]);
      if (items.length > 0) {
        at += restore(items.map(({ raw }) => raw).join('')).length;
        open = { kind: 'list', prefix: '' };
      }
      return;
    }
    tail = blocksOf([last]);
    if (last.type !== 'table' || tail[0]?.kind !== 'table') return;
    const table = last as Tokens.Table;
    const rows = table.rows.slice(0, -1);
    if (rows.length === 0) return;
    add(blocksOf([{ ...table, rows }]));
    tail = blocksOf([{ ...table, rows: table.rows.slice(-1) }]);
    const lines = restore(table.raw).split('\n');
    const lengthOf = (count: number) => lines.slice(0, count).join('\n').length + 1;
    const prefix = lines.slice(0, 2).join('\n');
    at += lengthOf(2 + rows.length) - (open?.prefix ?? '').length;
    open = { kind: 'table', prefix: `${prefix}\n` };
  }

  function step(): boolean {
    if (isRead) return false;
    const isTooLong = at >= MAX_MARKDOWN || done.length >= MAX_BLOCKS;
    const fence = isTooLong ? null : FENCE.exec(text.slice(at, at + 300));
    if (at >= text.length) isRead = true;
    else if (fence) stepCode(fence);
    else if (!isTooLong) stepProse();
    else {
      const { end } = findEnd();
      if (end > at) add([{ kind: 'plain', text: text.slice(at, end) }]);
      isRead = end === at || end === text.length;
      advance(end);
    }
    return !isRead;
  }

  return {
    /** Sets the text; `whole` means that no more follows. */
    update(next: string, whole: boolean): void {
      const lines = next.includes('\r') ? next.replace(whole ? /\r\n?/g : /\r\n?(?!$)/g, '\n') : next;
      if (lines === text && whole === isWhole) return;
      if (!lines.startsWith(text.slice(0, at))) {
        advance(0);
        done = [];
      }
      text = lines;
      isWhole = whole;
      isRead = false;
    },
    /** Parses another piece. Returns true while more is left. */
    step,
    /** The parsed content. Complete blocks stay the same objects. */
    get blocks(): readonly Block[] {
      const [first, ...rest] = tail;
      return open && first ? [...done.slice(0, -1), ...join(done.at(-1), first), ...rest] : [...done, ...tail];
    },
    /** Characters that the next step parses again; 0 in code, whose end alone is read. */
    get tailLength(): number {
      return tail[0]?.kind === 'code' ? 0 : Math.min(text.length - at, MAX_PIECE);
    },
    /** The text that was not parsed yet. */
    get rest(): string {
      return isRead ? '' : text.slice(at);
    },
  };
}

/** Index of the last block, or of the list that a bare number behind it may continue while text arrives; -1 without one. */
function findLast(tokens: readonly Token[], isArriving: boolean): number {
  const isBlock = ({ type }: Token) => type !== 'space';
  const last = tokens.findLastIndex(isBlock);
  if (!isArriving || !BARE_NUMBER.test(tokens[last]?.raw ?? '')) return last;
  const before = tokens.slice(0, last).findLastIndex(isBlock);
  return tokens[before]?.type === 'list' ? before : last;
}

const isHighSurrogate = (unit: number): boolean => unit >= 0xd800 && unit < 0xdc00;
