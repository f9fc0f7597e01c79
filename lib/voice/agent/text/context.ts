import { cutText } from '../../../chat/preview.ts';
import { isObject, type JsonObject } from '../../../kit/json.ts';
import { visibleLine } from '../../../kit/text.ts';

/** A message from before the voice session, on one line. */
export interface ContextMessage {
  role: 'user' | 'assistant' | 'system';
  content: string;
  source?: string;
}

const ROLES = ['user', 'assistant', 'system'] as const;
const MAX_LOOKED_AT = 20;
const MAX_KEPT = 14;
const MAX_CONTENT = 1500;
const MAX_SOURCE = 80;

/** The `context_messages` of a request; anything but an array counts as empty (contract 06 §3.3). */
export function readContextMessages(value: unknown): ContextMessage[] {
  if (!Array.isArray(value)) return [];
  const messages = value.slice(-MAX_LOOKED_AT).map((item) => {
    if (!isObject(item)) return undefined;
    return contextMessage(item.role, item.content, typeof item.source === 'string' ? item.source : '');
  });
  return lastOf(messages);
}

/** Like `readContextMessages`, for the messages of a chat session from upstream. Texts may be in parts. */
export function readHistory(messages: readonly JsonObject[]): ContextMessage[] {
  const read = messages.slice(-MAX_LOOKED_AT).map(({ role, type, content, text, message, final_response }) => {
    const said = [content, text, message, final_response].map(textOf).find((candidate) => candidate.trim() !== '');
    return contextMessage(role ?? type, said, 'svc_session');
  });
  return lastOf(read);
}

const lastOf = (messages: (ContextMessage | undefined)[]): ContextMessage[] =>
  messages.filter((message) => message !== undefined).slice(-MAX_KEPT);

function contextMessage(role: unknown, content: unknown, source: string): ContextMessage | undefined {
  const known = ROLES.find((name) => typeof role === 'string' && name === role.trim().toLowerCase());
  const text = typeof content === 'string' ? cutText(content.replace(/\s+/g, ' ').trim(), MAX_CONTENT) : '';
  if (!known || text === '') return undefined;
  const from = visibleLine(source).trim().slice(0, MAX_SOURCE).toWellFormed();
  return { role: known, content: text, ...(from === '' ? {} : { source: from }) };
}

/** A string, or the texts of a list of parts. */
function textOf(value: unknown): string {
  if (typeof value === 'string') return value;
  if (!Array.isArray(value)) return '';
  const texts = value.map((part) => {
    const text = isObject(part) ? (part.text ?? part.content) : part;
    return typeof text === 'string' ? text : '';
  });
  return texts.filter((text) => text !== '').join(' ');
}

const LABELS = { user: 'User', assistant: 'Assistant', system: 'System' };

/** One line per message, oldest first. */
export const contextLines = (messages: readonly ContextMessage[]): string[] =>
  messages.map(({ role, source, content }) => `${LABELS[role]}${source ? ` (${source})` : ''}: ${content}`);
