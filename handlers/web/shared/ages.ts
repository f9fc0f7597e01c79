import { type ReadonlySignal, signal } from '@preact/signals';
import { useEffect, useState } from 'preact/hooks';
import { isTime } from '../../../lib/kit/clock.ts';
import type { I18n } from './i18n.ts';

/** A duration in one unit, rounded: `12 s`, `3 min`, `2 h`, `5 d`. */
export function ageText(milliseconds: number, t: I18n['t']): string {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  const [minutes, hours, days] = [60, 3600, 86_400].map((unit) => Math.round(seconds / unit)) as [
    number,
    number,
    number,
  ];
  if (seconds < 60) return t('{n} s', { n: seconds });
  if (minutes < 60) return t('{n} min', { n: minutes });
  if (hours < 24) return t('{n} h', { n: hours });
  return t('{n} d', { n: days });
}

/**
 * A time for display: only the time if it is today, else with its date, and with the year unless that is this one. A time that
 * no date can hold is a question mark.
 */
export function timeText(epochMs: number, language: string, now = Date.now()): string {
  if (!isTime(epochMs)) return '?';
  const [then, today] = [new Date(epochMs), new Date(now)];
  const isToday = then.toDateString() === today.toDateString();
  const isThisYear = then.getFullYear() === today.getFullYear();
  return new Intl.DateTimeFormat(language, {
    hour: '2-digit',
    minute: '2-digit',
    ...(!isToday && { day: 'numeric', month: 'short' }),
    ...(!isThisYear && { year: 'numeric' }),
  }).format(then);
}

/** Bytes in the most suitable unit. */
export function sizeText(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const [value, unit] = bytes < 1024 * 1024 ? [bytes / 1024, 'KB'] : [bytes / (1024 * 1024), 'MB'];
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

/** `Date.now()`, updated every `period` ms while the component is shown. */
export function useNow(period = 1000): ReadonlySignal<number> {
  const [now] = useState(() => signal(Date.now()));
  useEffect(() => {
    const timer = setInterval(() => {
      now.value = Date.now();
    }, period);
    return () => clearInterval(timer);
  }, [now, period]);
  return now;
}
