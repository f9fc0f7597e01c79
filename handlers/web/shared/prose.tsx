import type { ComponentChildren } from 'preact';
import { useMemo } from 'preact/hooks';

/** An agent's text with paragraphs, code and links. Anything else stays unchanged. */
export function Prose({ text }: { text: string }) {
  const parts = useMemo(() => text.split(/^```[^\n]*\n?/m), [text]);
  return (
    <div class="prose">
      {parts.map((part, index) =>
        // Between two fences is code, even if the second one has not arrived yet.
        index % 2 === 1 ? (
          <pre key={index}>
            <code>{part.replace(/\n$/, '')}</code>
          </pre>
        ) : (
          part.trim() !== '' && <p key={index}>{inline(part.trim())}</p>
        ),
      )}
    </div>
  );
}

const INLINE = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|(https?:\/\/[^\s<>"')\]]+)/g;

function inline(text: string): ComponentChildren[] {
  const parts: ComponentChildren[] = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    const [whole, code, bold, link] = match;
    parts.push(text.slice(end, match.index));
    if (code !== undefined) parts.push(<code>{code}</code>);
    else if (bold !== undefined) parts.push(<strong>{bold}</strong>);
    else if (link !== undefined) parts.push(<OutsideLink href={link} />);
    end = match.index + whole.length;
  }
  parts.push(text.slice(end));
  return parts;
}

const OutsideLink = ({ href }: { href: string }) => (
  <a href={href} target="_blank" rel="noopener noreferrer">
    {href}
  </a>
);
