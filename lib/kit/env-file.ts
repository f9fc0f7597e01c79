import { decodeUtf8Strict } from './text.ts';

const ASSIGNMENT = /^[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*/;

/** Decodes UTF-8 without a byte-order mark, otherwise Latin-1 (contract 07 §6.1). */
export const decodeEnvFile = (bytes: Uint8Array): string =>
  decodeUtf8Strict(bytes) ?? new TextDecoder('latin1').decode(bytes);

/**
 * Parses `KEY=value` lines (contract 07 §6.1): optional `export `, one pair of matching quotes (a quoted value may span
 * lines), `#` comments (unquoted ones only after white space). No interpolation, no escapes. Other lines are skipped; the
 * last assignment of a name wins. With `oneLine`, a quote that is not closed on its line is part of the value, as in the
 * `.env` of a profile (07 §1.2).
 */
export function parseEnvFile(text: string, { oneLine = false } = {}): Record<string, string> {
  const values: Record<string, string> = Object.create(null);
  let rest = text.replace(/^\ufeff/, '').replaceAll('\r\n', '\n');
  while (rest !== '') {
    const end = rest.indexOf('\n');
    const line = end < 0 ? rest : rest.slice(0, end);
    let next = end < 0 ? '' : rest.slice(end + 1);
    const match = ASSIGNMENT.exec(line);
    if (match) {
      const raw = line.slice(match[0].length);
      const quote = raw[0];
      const start = match[0].length + 1;
      const close = quote === '"' || quote === "'" ? (oneLine ? line : rest).indexOf(quote, start) : -1;
      if (close >= 0) {
        values[match[1] as string] = rest.slice(start, close);
        const after = rest.indexOf('\n', close);
        next = after < 0 ? '' : rest.slice(after + 1);
      } else {
        const comment = /[ \t]$/.test(match[0]) ? /(?:^|[ \t])#.*$/ : /[ \t]#.*$/;
        values[match[1] as string] = raw.replace(comment, '').trim();
      }
    }
    rest = next;
  }
  return values;
}

/**
 * The text of an `.env` file with some variables set. Replaces the last assignment of a name, which is the effective
 * one, and appends a new name. Every other line stays. Values are plain words, which need no quotes.
 */
export function setInEnvFile(text: string, variables: Readonly<Record<string, string>>): string {
  let lines = text === '' ? [] : text.replace(/\n$/, '').split('\n');
  for (const [name, value] of Object.entries(variables)) {
    const at = lines.findLastIndex((row) => ASSIGNMENT.exec(row)?.[1] === name);
    const row = `${name}=${value}`;
    if (at < 0 || parseEnvFile(lines.toSpliced(at, 1, row).join('\n'))[name] !== value) lines = [...lines, row];
    else lines = lines.toSpliced(at, 1, row);
  }
  return `${lines.join('\n')}\n`;
}
