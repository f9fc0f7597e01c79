import { isSecretName } from '../kit/secret-names.ts';
import { HIDDEN, hideSecrets } from '../kit/secret-text.ts';
import { visibleJson, visibleLine } from '../kit/text.ts';

const MAX_NAME = 128;
const MAX_KEYS = 20;
/** Characters shown of one value: its start, and its end, where a command may hide something. */
const HEAD = 1_500;
const TAIL = 500;
/** Maximum characters of all values. */
const MAX_TEXT = 6_000;

/**
 * An agent's call as shown to its owner in a question, one member of the input per line. Recognisable secrets are hidden.
 */
export function shownCall(tool: string, input: Readonly<Record<string, unknown>>): string {
  const keys = Object.keys(input);
  const lines: string[] = [];
  let left = MAX_TEXT;
  for (const key of keys.slice(0, MAX_KEYS)) {
    const line = `${shownName(key)}: ${isSecretName(key) ? HIDDEN : shownValue(input[key])}`;
    if (line.length > left) break;
    left -= line.length;
    lines.push(line);
  }
  const missing = keys.length - lines.length;
  if (missing > 0) lines.push(`[${missing} more ${missing === 1 ? 'field' : 'fields'} not shown]`);
  return [`The agent wants to use ${shownName(tool)}.`, ...lines].join('\n\n');
}

export const shownName = (name: string): string => visibleLine(name).slice(0, MAX_NAME).toWellFormed();

function shownValue(value: unknown): string {
  if (typeof value === 'string') return hideSecrets(visibleJson(clipped(value)));
  if (typeof value !== 'object' || value === null) return String(value);
  const withoutSecrets = (key: string, inner: unknown) => (isSecretName(key) ? HIDDEN : inner);
  return hideSecrets(visibleJson(clipped(JSON.stringify(value, withoutSecrets))));
}

function clipped(text: string): string {
  const cut = text.length - HEAD - TAIL;
  if (cut <= 0) return text.toWellFormed();
  return `${text.slice(0, HEAD)}\n[${cut} characters not shown]\n${text.slice(-TAIL)}`.toWellFormed();
}
