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

interface PanesProps {
  isWide: boolean;
  list: ComponentChildren;
  /** The chosen item; false without one. */
  children: ComponentChildren;
  /** Beside the list while nothing is chosen. */
  empty?: ComponentChildren;
}

/**
 * A list and its chosen item, each scrolling separately; on a narrow page, only one of them. The item keeps its elements when
 * the width changes: a tablet may be turned while its user types.
 */
export const Panes = ({ isWide, list, children, empty }: PanesProps) => (
  <div class={isWide ? 'panes' : 'alone'}>
    {(isWide || !children) && <div key="list">{list}</div>}
    {(isWide || children) && <div key="item">{children || empty}</div>}
  </div>
);
