import { useComputed, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { useApp } from '../context.ts';
import type { Appearance } from './view.ts';

/** True while a media query matches. */
function useMedia(query: string) {
  const matches = useSignal(false);
  useEffect(() => {
    const list = matchMedia(query);
    const follow = () => {
      matches.value = list.matches;
    };
    follow();
    list.addEventListener('change', follow);
    return () => list.removeEventListener('change', follow);
  }, [query, matches]);
  return matches;
}

/** Appearance of terminals, from the settings and the system's preferences. */
export function useAppearance() {
  const { values } = useApp().settings;
  const isDarkSystem = useMedia('(prefers-color-scheme: dark)');
  const isCalm = useMedia('(prefers-reduced-motion: reduce)');
  return useComputed<Appearance>(() => ({
    fontSize: values.terminal_font_size.value,
    isDark: values.theme.value === 'dark' || (values.theme.value === 'system' && isDarkSystem.value),
    screenReader: values.terminal_screen_reader.value,
    isCalm: isCalm.value,
  }));
}
