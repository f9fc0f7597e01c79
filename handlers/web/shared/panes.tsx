import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';

const WIDE = '(min-width: 64rem)';

/** True if a list and its chosen item fit beside each other. */
export function useWide(): boolean {
  const isWide = useSignal(matchMedia(WIDE).matches);
  useEffect(() => {
    const query = matchMedia(WIDE);
    const onChange = () => {
      isWide.value = query.matches;
    };
    // It may have changed since the first drawing.
    onChange();
    query.addEventListener('change', onChange);
    return () => query.removeEventListener('change', onChange);
  }, [isWide]);
  return isWide.value;
}

/** A list, and beside it the chosen item. Each scrolls separately. */
export const Panes = ({ list, children }: { list: ComponentChildren; children: ComponentChildren }) => (
  <div class="panes">
    <div>{list}</div>
    <div>{children}</div>
  </div>
);
