import { useSignal } from '@preact/signals';
import type { ComponentChildren, VNode } from 'preact';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { Button, useCopy } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { useApp } from '../context.ts';
import { createFrames } from '../frames.ts';
import { ReferenceView } from '../media/text.tsx';
import {
  type Block,
  type CodeBlock,
  createMarkdown,
  type Inline,
  type List,
  type ListItem,
  type Table,
} from './parse.ts';

/** Lines of code in one element, and characters of one line: a text that grows is drawn anew from its last element on. */
const PART_LINES = 50;
const MAX_LINE = 2000;
const GROUP_BLOCKS = 8;
const UNBROKEN = /\S{200}/;
/** Characters that are shown as they were written until a frame has time to read them. */
const FIRST_LOOK = 2000;
/** Characters of an unfinished block for each frame that it waits, so that reading it again and again costs the same. */
const PER_FRAME = 2048;

interface MarkdownProps {
  text: string;
  /** Whether nothing of the text is still to come. */
  isWhole: boolean;
}

/** A text of the agent, formatted. It is read a few milliseconds in each frame; complete blocks are drawn once. */
export function MarkdownText({ text, isWhole }: MarkdownProps) {
  const frames = useApp().kept(createFrames);
  const groups = useMemo((): Group[] => [], []);
  const markdown = useMemo(createMarkdown, []);
  const version = useSignal(0);
  const skipped = useRef(0);
  const work = useMemo(
    () => () => {
      if (skipped.current++ < markdown.tailLength / PER_FRAME - 1) return true;
      skipped.current = 0;
      const more = markdown.step();
      version.value++;
      return more;
    },
    [markdown, version],
  );
  markdown.update(text, isWhole);
  // Most texts are short, and then there at once.
  while (markdown.blocks.length === 0 && frames.hasTime() && markdown.step());
  useEffect(() => frames.request(work), [text, isWhole, frames, work]);
  useEffect(() => () => frames.cancel(work), [frames, work]);
  const { blocks, rest } = markdown;
  version.value;
  return (
    <div class="prose">
      {drawGroups(groups, blocks)}
      {blocks.length === 0 && rest.trim() !== '' && <p>{breakable(rest.slice(0, FIRST_LOOK))}</p>}
    </div>
  );
}

/** Blocks that are drawn together. A browser lays out no group that is out of sight. */
interface Group {
  /** The last of them. Those before it are complete, and never change. */
  last: Block | undefined;
  length: number;
  /** Of the last heading up to here. */
  level: number;
  view: VNode;
}

/** Draws groups that have changed, and the others as they were. */
function drawGroups(groups: Group[], blocks: readonly Block[]): VNode[] {
  groups.length = Math.ceil(blocks.length / GROUP_BLOCKS);
  for (const index of groups.keys()) {
    const own = blocks.slice(index * GROUP_BLOCKS, (index + 1) * GROUP_BLOCKS);
    const group = groups[index];
    if (group && group.last === own.at(-1) && group.length === own.length) continue;
    let level = groups[index - 1]?.level ?? 2;
    const views = own.map((block, at) => {
      // A step in the levels of headings would be a gap in the outline of the page.
      if (block.kind === 'heading') level = Math.min(block.depth + 2, level + 1, 6);
      return <BlockView key={at} block={block} level={level} />;
    });
    groups[index] = { last: own.at(-1), length: own.length, level, view: <div key={index}>{views}</div> };
  }
  return groups.map(({ view }) => view);
}

/** `level`: of a heading, 0 where none may be. */
function BlockView({ block, level = 0 }: { block: Block; level?: number }) {
  switch (block.kind) {
    case 'paragraph':
      return <Paragraph>{block.children}</Paragraph>;
    case 'tight':
      return <>{inline(block.children)}</>;
    case 'heading': {
      const Heading = `h${level}` as 'h3';
      return level === 0 ? (
        <p>
          <strong>{inline(block.children)}</strong>
        </p>
      ) : (
        <Heading dir="auto">{inline(block.children)}</Heading>
      );
    }
    case 'quote':
      return (
        <blockquote>
          <Blocks blocks={block.blocks} />
        </blockquote>
      );
    case 'plain':
      return <p dir="auto">{breakable(block.text)}</p>;
    case 'rule':
      return <hr />;
    case 'code':
      return <CodeView block={block} />;
    case 'list':
      return <ListView list={block} />;
    case 'table':
      return <TableView table={block} />;
  }
}

const Blocks = ({ blocks }: { blocks: readonly Block[] }) => (
  <>
    {blocks.map((block, index) => (
      <BlockView key={index} block={block} />
    ))}
  </>
);

/** A file is drawn with parts that a paragraph may not hold. */
function Paragraph({ children }: { children: readonly Inline[] }) {
  const hasFile = children.some((child) => typeof child !== 'string' && child.kind === 'file');
  const Element = hasFile ? 'div' : 'p';
  return (
    <Element class={hasFile ? 'paragraph' : undefined} dir="auto">
      {inline(children)}
    </Element>
  );
}

function ListView({ list: { start, items } }: { list: List }) {
  const rows = items.map((item, index) => <ItemView key={index} item={item} />);
  return start === null ? <ul>{rows}</ul> : <ol start={start}>{rows}</ol>;
}

function ItemView({ item: { isDone, blocks } }: { item: ListItem }) {
  const t = useT();
  return (
    <li class={isDone === null ? undefined : 'task'} dir="auto">
      {isDone !== null && (
        <span class="tick" role="img" aria-label={isDone ? t('done') : t('to do')}>
          {isDone ? '☑' : '☐'}
        </span>
      )}
      <Blocks blocks={blocks} />
    </li>
  );
}

function TableView({ table: { head, rows, align } }: { table: Table }) {
  const t = useT();
  const classOf = (index: number) => align[index] ?? undefined;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is for fields
    <div class="wide" role="group" tabIndex={0} aria-label={t('Table')}>
      <table>
        <thead>
          <tr>
            {head.map((cell, index) => (
              <th key={index} class={classOf(index)} dir="auto">
                {inline(cell)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, at) => (
            <tr key={at}>
              {row.map((cell, index) => (
                <td key={index} class={classOf(index)} dir="auto">
                  {inline(cell)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function CodeView({ block: { language, text } }: { block: CodeBlock }) {
  const t = useT();
  const isWrapped = useSignal(true);
  const copy = useCopy();
  return (
    <div class="code">
      <div class="row">
        <span class="grow small soft">{language || t('Code')}</span>
        <Button
          kind="plain"
          icon="wrap"
          label={t('Wrap long lines')}
          aria-pressed={isWrapped.value}
          onClick={() => {
            isWrapped.value = !isWrapped.value;
          }}
        />
        <Button kind="plain" icon="copy" label={t('Copy the code')} onClick={() => void copy(text)} />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <pre class={isWrapped.value ? 'wrapped' : undefined} tabIndex={0} dir="ltr">
        <code>
          {codeParts(text).map((part, index) => (
            <span key={index}>{breakable(part)}</span>
          ))}
        </code>
      </pre>
    </div>
  );
}

/** Code in parts of some lines each. Controls that make code look like other code are shown by their number. */
export function codeParts(text: string): string[] {
  const lines = text.split('\n').flatMap(cutLine);
  const count = Math.ceil(lines.length / PART_LINES);
  return Array.from({ length: count }, (_, index) =>
    lines
      .slice(index * PART_LINES, (index + 1) * PART_LINES)
      .join('\n')
      .replace(/[\u202A-\u202E\u2066-\u2069]/g, (control) => `<U+${control.charCodeAt(0).toString(16).toUpperCase()}>`),
  );
}

function cutLine(line: string): string[] {
  if (line.length <= MAX_LINE) return [line];
  const count = Math.ceil(line.length / MAX_LINE);
  return Array.from({ length: count }, (_, index) => line.slice(index * MAX_LINE, (index + 1) * MAX_LINE));
}

const inline = (children: readonly Inline[]): ComponentChildren =>
  children.map((child, index) =>
    typeof child === 'string' ? breakable(child) : <InlineView key={index} inline={child} />,
  );

/** Text with places to break where it has none for long: a browser takes the square of its length to find them. */
function breakable(text: string): ComponentChildren {
  if (!UNBROKEN.test(text)) return text;
  return text.split(/(\S{100})/).flatMap((part, index) => (index % 2 === 0 ? [part] : [part, <wbr key={index} />]));
}

function InlineView({ inline: part }: { inline: Exclude<Inline, string> }) {
  switch (part.kind) {
    case 'strong':
      return <strong>{inline(part.children)}</strong>;
    case 'em':
      return <em>{inline(part.children)}</em>;
    case 'del':
      return <del>{inline(part.children)}</del>;
    case 'code':
      return <code>{breakable(part.text)}</code>;
    case 'break':
      return <br />;
    case 'link':
      return (
        <a href={part.href} title={part.href} target="_blank" rel="noopener noreferrer">
          <bdi>{inline(part.children)}</bdi>
        </a>
      );
    case 'file':
      return <ReferenceView reference={part.reference} />;
  }
}
