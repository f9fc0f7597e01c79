import { type ReadonlySignal, useSignal } from '@preact/signals';
import type { RefObject } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';

/** Pixels from the end within which the view counts as being there. */
const NEAR_END = 80;

/**
 * Keeps the end of `content` in sight of `scroller` while a person has not scrolled away from it, whatever grows there: text,
 * pictures that load, the keyboard of a phone.
 */
export function useFollow(
  scroller: RefObject<HTMLElement | null>,
  content: RefObject<HTMLElement | null>,
): { isAtEnd: ReadonlySignal<boolean>; goToEnd(): void } {
  const isAtEnd = useSignal(true);
  const top = useRef(0);

  function goToEnd(): void {
    isAtEnd.value = true;
    const { current } = scroller;
    if (current) current.scrollTop = current.scrollHeight;
  }

  useLayoutEffect(() => {
    const [view, inner] = [scroller.current, content.current];
    if (!view || !inner) return undefined;
    const follow = () => {
      if (isAtEnd.peek()) view.scrollTop = view.scrollHeight;
    };
    const onScroll = () => {
      const isNear = view.scrollHeight - view.scrollTop - view.clientHeight < NEAR_END;
      // What grows below moves the end away without a person's doing.
      if (isNear) isAtEnd.value = true;
      else if (view.scrollTop < top.current) isAtEnd.value = false;
      top.current = view.scrollTop;
    };
    const observer = new ResizeObserver(follow);
    observer.observe(view);
    observer.observe(inner);
    view.addEventListener('scroll', onScroll, { passive: true });
    follow();
    return () => {
      observer.disconnect();
      view.removeEventListener('scroll', onScroll);
    };
  }, [scroller, content, isAtEnd]);
  return { isAtEnd, goToEnd };
}
