/** Emoji that agents put before the names of tools, whose names a voice would read aloud. */
const MARKERS = '[\\u{1F527}\\u2705\\u274C\\u{1F4BB}\\u{1F4F1}\\u{1F3A4}\\u{1F50A}\\u26A0]';

/**
 * Removes the parts of a reply that are not meant to be spoken, by the eleven rules of contract 05 §7 in order. The result
 * may be empty.
 *
 * Linear time on any input: a pattern scans ahead only if it then matches, or proves that nothing later in the text can
 * match.
 */
export function sanitize(text: string): string {
  return withoutLinks(
    text.replace(/```[\s\S]*?```/g, ' ').replace(new RegExp(`\`${MARKERS}\\uFE0F?[^\`]*\``, 'gu'), ''),
  )
    .replace(/https?:\/\/\S*/g, '')
    .replace(/\*\*(.+?)\*\*/g, '$1')
    .replace(/\*(.+?)\*/g, '$1')
    .replace(/`([^`]+)`/g, '$1')
    .replace(/^#+[ \t]*/gm, '')
    .replace(/^[ \t]*[-*][ \t]+/gm, '')
    .replace(/-{3,}/g, '')
    .replace(new RegExp(`${MARKERS}\\uFE0F?`, 'gu'), '')
    .replace(/\n{3,}/g, '\n\n')
    .trim();
}

/**
 * Replaces `[label](target)` by its label. The pattern `\[([^\]]+)\]\(([^)]+)\)` would take quadratic time on a text of
 * opening brackets, so the position of each closing one is looked up once.
 */
function withoutLinks(text: string): string {
  const closing = forwardIndexOf(text, ']');
  const targetEnd = forwardIndexOf(text, ')');
  let result = '';
  let done = 0;
  for (let open = text.indexOf('['); open >= 0; open = text.indexOf('[', open + 1)) {
    const close = closing(open + 1);
    if (close < 0) break;
    if (close === open + 1 || text[close + 1] !== '(') continue;
    const end = targetEnd(close + 2);
    if (end < 0) break;
    if (end === close + 2) continue;
    result += text.slice(done, open) + text.slice(open + 1, close);
    done = end + 1;
    open = end;
  }
  return result + text.slice(done);
}

/** `text.indexOf(sign, from)` for calls with a `from` that never decreases, in linear time for all of them together. */
function forwardIndexOf(text: string, sign: string): (from: number) => number {
  let found = -1;
  let isOver = false;
  return (from) => {
    if (!isOver && found < from) {
      found = text.indexOf(sign, from);
      isOver = found < 0;
    }
    return isOver ? -1 : found;
  };
}
