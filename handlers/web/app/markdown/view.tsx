import { useSignal } from '@preact/signals';
import { type ComponentChildren, Fragment, type VNode } from 'preact';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { Button, useCopy } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { useApp } from '../context.ts';
import { createFrames, type Frames, type Left } from '../frames.ts';
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

/** Lines of code in one element, and characters of one line: a growing text is rendered again from its last element on. */
const PART_LINES = 10;
const MAX_LINE = 2000;
const GROUP_BLOCKS = 16;
/** Unchanged groups that are skipped together. */
const SECTION_GROUPS = 16;
const UNBROKEN = /\S{200}/;
/** Characters that are shown as plain text until a frame has time to parse them. */
const FIRST_LOOK = 2000;
/** Characters of an unfinished block per frame of delay, so that parsing it repeatedly costs the same. */
const PER_FRAME = 2048;

/**
 * Characters of a stream that are parsed at a time: initially, and at least and at most, depending on the device's speed.
 */
const FIRST_PACE = 200;
const MIN_PACE = 100;
const MAX_PACE = 2000;
/** Milliseconds of a frame above which the next ones render less. */
const SLOW = 10;
/** Milliseconds within which all of the rest is shown, even on a slow device. */
const MAX_TURNS = 1000;
/** Characters that arrive at once and do not count as a stream: text missed without a connection. */
const JUMP = 16 * 1024;

interface MarkdownProps {
  text: string;
  /** True if no more text follows. */
  isWhole: boolean;
}

/** A text of the agent, formatted. It is parsed for a few milliseconds in each frame; complete blocks are rendered once. */
export function MarkdownText({ text, isWhole }: MarkdownProps) {
  const frames = useApp().retained(createFrames);
  const draw = useMemo(createDrawing, []);
  const version = useSignal(0);
  const reading = useMemo(() => createReading(frames, () => version.value++), [frames, version]);
  reading.update(text, isWhole);
  useEffect(() => () => frames.cancel(reading.work), [frames, reading]);
  const { blocks, rest } = reading.markdown;
  version.value;
  return (
    <div class="prose">
      {draw(blocks)}
      {blocks.length === 0 && rest.trim() !== '' && <p>{breakable(rest.slice(0, FIRST_LOOK))}</p>}
    </div>
  );
}

/**
 * Parses a growing text, and calls `onRead` when there is more to render. Takes as much of a stream at a time as this device
 * renders within a frame, parsing and rendering in turns; faster input is shown slightly later.
 */
function createReading(frames: Frames, onRead: () => void) {
  const markdown = createMarkdown();
  let text = '';
  let isWhole = false;
  /** Characters passed to the parser. */
  let shown = 0;
  let pace = FIRST_PACE;
  let skipped = 0;
  let isUndrawn = false;

  function show(length: number): void {
    shown = length;
    markdown.update(text.slice(0, shown), isWhole && shown === text.length);
  }

  function work(): Left {
    if (isUndrawn) {
      isUndrawn = false;
      onRead();
      return 'another frame';
    }
    if (skipped++ < markdown.tailLength / PER_FRAME - 1) return 'another frame';
    skipped = 0;
    const left = text.length - shown;
    if (left === 0) {
      const isMore = markdown.step();
      onRead();
      return isMore ? 'more' : 'nothing';
    }
    pace = frames.cost > SLOW ? Math.max(MIN_PACE, pace * 0.8) : Math.min(MAX_PACE, pace * 1.1);
    show(shown + Math.min(left, Math.ceil(Math.max(pace, left / MAX_TURNS))));
    markdown.step();
    isUndrawn = true;
    return 'another frame';
  }

  return {
    markdown,
    work,
    /** Sets the text; `whole` means that no more follows. */
    update(next: string, whole: boolean): void {
      if (next === text && whole === isWhole) return;
      const isNew = text === '';
      const isStream = !(isNew && whole) && next.length - text.length < (isNew ? FIRST_LOOK : JUMP) && !document.hidden;
      text = next;
      isWhole = whole;
      show(isStream ? Math.min(shown, text.length) : text.length);
      // Most texts are short, and are complete at once.
      while (isNew && !isStream && markdown.blocks.length === 0 && frames.hasTime() && markdown.step());
      frames.request(work);
    },
  };
}

/** Texts that together exercise the whole parser. */
const SAMPLES = ['a', '**a** ~~b~~', '- a\n- b', '|a|\n|-|\n|b|', '> a', '`a` [b](https://b.example)', '# a\n---\na'];

/**
 * Lets the browser compile the parser, a part in each frame, before an answer needs it; at once, that would take several
 * frames.
 */
export function useWarmMarkdown(): void {
  const frames = useApp().retained(createFrames);
  useEffect(() => {
    // A browser compiles a regular expression on its second use, and again for texts with non-Latin letters.
    const samples = ['', '', '…', '…'].flatMap((letter) => SAMPLES.map((sample) => sample + letter)).values();
    const work = (): Left => {
      const { value } = samples.next();
      if (value === undefined) return 'nothing';
      const markdown = createMarkdown();
      markdown.update(value, true);
      while (markdown.step());
      return 'another frame';
    };
    frames.request(work);
    return () => frames.cancel(work);
  }, [frames]);
}

/** Blocks that are rendered together. A browser skips the layout of invisible groups. */
interface Group {
  blocks: readonly Block[];
  /** For each block, the level of the last heading before it. */
  levels: readonly number[];
  views: readonly VNode[];
  view: VNode;
}

/** An unchanged component is skipped at once, while all blocks of an unchanged element would be compared. */
const GroupView = ({ children }: { children: ComponentChildren }) => <div>{children}</div>;

/** Renders arriving blocks: changed ones anew, the others from before. */
function createDrawing(): (blocks: readonly Block[]) => readonly VNode[] {
  const groups: Group[] = [];
  let sections: VNode[] = [];

  function drawGroup(index: number, own: readonly Block[]): void {
    const known = groups[index];
    let level = groups[index - 1]?.levels.at(-1) ?? 2;
    const levels: number[] = [];
    const views = own.map((block, at) => {
      // A skipped heading level would be a gap in the outline of the page.
      if (block.kind === 'heading') level = Math.min(block.depth + 2, level + 1, 6);
      levels.push(level);
      const view = known?.blocks[at] === block ? known.views[at] : undefined;
      return view ?? <BlockView key={at} block={block} level={level} />;
    });
    groups[index] = { blocks: own, levels, views, view: <GroupView key={index}>{views}</GroupView> };
  }

  return (blocks) => {
    groups.length = Math.min(groups.length, Math.ceil(blocks.length / GROUP_BLOCKS));
    sections = sections.slice(0, Math.ceil(groups.length / SECTION_GROUPS));
    for (let begin = 0; begin < blocks.length; begin += GROUP_BLOCKS) {
      const index = begin / GROUP_BLOCKS;
      const end = Math.min(blocks.length, begin + GROUP_BLOCKS);
      const known = groups[index]?.blocks;
      // The blocks before the last are complete, and never change.
      if (known?.length === end - begin && known.at(-1) === blocks[end - 1]) continue;
      drawGroup(index, blocks.slice(begin, end));
      const section = Math.floor(index / SECTION_GROUPS);
      const views = groups.slice(section * SECTION_GROUPS, (section + 1) * SECTION_GROUPS).map(({ view }) => view);
      sections[section] = <Fragment key={section}>{views}</Fragment>;
    }
    return sections;
  };
}

/** `level`: that of a heading, 0 if none is allowed. */
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

/** Renders each part of a growing list or table once, at its position. */
function createOnce<T extends object>(): (part: T, draw: () => VNode) => VNode {
  const views = new WeakMap<T, VNode>();
  return (part, draw) => {
    const view = views.get(part) ?? draw();
    views.set(part, view);
    return view;
  };
}

/** A file is rendered with elements that a paragraph must not contain. */
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
  const once = useMemo(createOnce<ListItem>, []);
  const rows = items.map((item, index) => once(item, () => <ItemView key={index} item={item} />));
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
  const once = useMemo(createOnce<Table['rows'][number]>, []);
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
          {rows.map((row, at) =>
            once(row, () => (
              <tr key={at}>
                {row.map((cell, index) => (
                  <td key={index} class={classOf(index)} dir="auto">
                    {inline(cell)}
                  </td>
                ))}
              </tr>
            )),
          )}
        </tbody>
      </table>
    </div>
  );
}

function CodeView({ block: { language, text } }: { block: CodeBlock }) {
  const t = useT();
  const isWrapped = useSignal(true);
  const copy = useCopy();
  const copyAll = useRef(() => {});
  copyAll.current = () => void copy(text);
  const code = useMemo(createCode, []);
  const isWrapping = isWrapped.value;
  const head = useMemo(
    () => (
      <div class="row">
        <span class="grow small soft">{language || t('Code')}</span>
        <Button
          kind="plain"
          icon="wrap"
          label={t('Wrap long lines')}
          aria-pressed={isWrapping}
          onClick={() => {
            isWrapped.value = !isWrapped.value;
          }}
        />
        <Button kind="plain" icon="copy" label={t('Copy the code')} onClick={() => copyAll.current()} />
      </div>
    ),
    [language, t, isWrapped, isWrapping],
  );
  return (
    <div class="code">
      {head}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <pre class={isWrapping ? 'wrapped' : undefined} tabIndex={0} dir="ltr">
        <code>{code(text)}</code>
      </pre>
    </div>
  );
}

/** Renders growing code in parts of some lines each, the complete ones once. */
function createCode(): (text: string) => readonly VNode[] {
  let complete = '';
  let views: VNode[] = [];
  const draw = (text: string): void => {
    for (const part of codeParts(text)) views.push(<span key={views.length}>{breakable(part)}</span>);
  };
  return (text) => {
    if (!text.startsWith(complete)) {
      complete = '';
      views = [];
    }
    const lines = text.slice(complete.length).split('\n');
    // The last line may continue.
    const count = lines.length - 1 - ((lines.length - 1) % PART_LINES);
    if (count > 0) {
      draw(lines.slice(0, count).join('\n'));
      complete += `${lines.slice(0, count).join('\n')}\n`;
    }
    const { length } = views;
    draw(lines.slice(count).join('\n'));
    const all = views;
    views = all.slice(0, length);
    return all;
  };
}

/** Code in parts of some lines each. Controls that disguise code are shown by their number. */
function codeParts(text: string): string[] {
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

/** Text with break opportunities in long unbroken runs, in which a browser would search for them in quadratic time. */
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
