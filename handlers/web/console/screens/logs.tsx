import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { Button, Choice, Empty, TextField } from '../../shared/components.tsx';
import { useI18n, useT } from '../../shared/i18n.ts';
import { useRouter } from '../../shared/router.ts';
import { useConsole } from '../context.ts';
import { ResourceView } from '../parts.tsx';
import type { LogLine } from '../stores/answers.ts';
import { keyOfLine } from '../stores/relay.ts';

const LEVELS = ['DEBUG', 'INFO', 'WARNING', 'ERROR'] as const;
/** Pixels from the end within which the view keeps following it. */
const NEAR_END = 40;

/** The log of the relay, as it is written. */
export default function Logs() {
  const t = useT();
  const { relay } = useConsole();
  const { place } = useRouter();
  const text = useSignal(place.peek().argument);
  const level = useSignal<LogLine['level']>('DEBUG');
  /** The lines that stay on screen while new ones are only counted. */
  const held = useSignal<readonly LogLine[] | undefined>(undefined);

  return (
    <div class="screen tall">
      <div class="filters">
        <TextField label={t('Filter')} of={text} type="search" placeholder={t('Words of a line')} />
        <Choice
          label={t('Level')}
          value={level.value}
          options={[
            ['DEBUG', t('Everything')],
            ['INFO', t('Info and worse')],
            ['WARNING', t('Warnings and errors')],
            ['ERROR', t('Errors')],
          ]}
          onChange={(chosen) => {
            level.value = chosen as LogLine['level'];
          }}
        />
      </div>
      <ResourceView of={relay.log}>
        {(lines) => (
          <>
            <div class="row apart">
              <Button
                icon={held.value ? 'play' : 'pause'}
                aria-pressed={held.value !== undefined}
                onClick={() => {
                  held.value = held.value ? undefined : lines;
                }}
              >
                {held.value ? t('Go on') : t('Pause')}
              </Button>
              {held.value && (
                <span class="soft" role="status">
                  {t('New lines: {n}', { n: newerThan(held.value, lines) })}
                </span>
              )}
            </div>
            <Lines
              lines={(held.value ?? lines).filter(matches(text.value, level.value))}
              isHeld={held.value !== undefined}
            />
          </>
        )}
      </ResourceView>
    </div>
  );
}

const matches = (text: string, level: LogLine['level']): ((line: LogLine) => boolean) => {
  const worst = LEVELS.indexOf(level);
  const wanted = text.trim().toLowerCase();
  return (line) =>
    LEVELS.indexOf(line.level) >= worst &&
    (wanted === '' || `${line.name}: ${line.text}`.toLowerCase().includes(wanted));
};

/** Number of lines after the held ones. */
function newerThan(held: readonly LogLine[], lines: readonly LogLine[]): number {
  const last = held.at(-1);
  return last ? lines.length - 1 - lines.lastIndexOf(last) : lines.length;
}

/** Follows the end, unless the reader has scrolled away from it. */
function Lines({ lines, isHeld }: { lines: readonly LogLine[]; isHeld: boolean }) {
  const { t, language } = useI18n();
  const box = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  useEffect(() => {
    const element = box.current;
    if (element && follows.current && !isHeld) element.scrollTop = element.scrollHeight;
  }, [lines.at(-1), lines.length]);
  if (lines.length === 0) return <Empty icon="log">{t('No line matches.')}</Empty>;
  const time = new Intl.DateTimeFormat(language, {
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    hourCycle: 'h23',
  });
  return (
    <div
      ref={box}
      class="log"
      role="log"
      aria-live="off"
      aria-label={t('Lines of the log')}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
      tabIndex={0}
      onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
        follows.current = scrollHeight - scrollTop - clientHeight < NEAR_END;
      }}
    >
      {lines.map((line) => (
        <p key={keyOfLine(line)} class={line.level.toLowerCase()}>
          <time dateTime={new Date(line.ts * 1000).toISOString()}>{time.format(line.ts * 1000)}</time>
          <b>{line.level}</b>
          <span>
            {line.name}: {line.text}
          </span>
        </p>
      ))}
    </div>
  );
}
