import { type ReadonlySignal, useSignal } from '@preact/signals';
import type { RefObject } from 'preact';
import { useCallback, useLayoutEffect, useRef } from 'preact/hooks';

/** Pixels from the end within which the view counts as being there. */
const NEAR_END = 80;
/** Events of a scrolling person, and the milliseconds after one in which a move of the view counts as theirs. */
const MOVES = ['wheel', 'touchmove', 'keydown'] as const;
const OWN_MOVE = 300;
/** Milliseconds without a change after which the size of the content is observed again. */
const QUIET = 200;

/**
 * Keeps the end of `content` visible in `scroller` unless a person has scrolled away from it, whatever grows there: text,
 * loading pictures, a phone's keyboard.
 */
export function useFollow(
  scroller: RefObject<HTMLElement | null>,
  content: RefObject<HTMLElement | null>,
): { isAtEnd: ReadonlySignal<boolean>; goToEnd(): void } {
  const isAtEnd = useSignal(true);
  const top = useRef(0);

  const goToEnd = useCallback(() => {
    isAtEnd.value = true;
    const { current } = scroller;
    if (current) current.scrollTop = current.scrollHeight;
  }, [isAtEnd, scroller]);

  useLayoutEffect(() => {
    const [view, inner] = [scroller.current, content.current];
    if (!view || !inner) return undefined;
    const follow = () => {
      if (isAtEnd.peek()) view.scrollTop = view.scrollHeight;
    };
    let height = view.scrollHeight;
    let movedAt = 0;
    const onScroll = () => {
      const { scrollHeight, scrollTop, clientHeight } = view;
      // Content that grows or shrinks also moves the view, without a person.
      const isOwn = scrollHeight === height || performance.now() - movedAt < OWN_MOVE;
      if (scrollHeight - scrollTop - clientHeight < NEAR_END) isAtEnd.value = true;
      else if (isOwn && scrollTop < top.current) isAtEnd.value = false;
      top.current = scrollTop;
      height = scrollHeight;
    };
    const onMove = () => {
      movedAt = performance.now();
    };
    const observer = new ResizeObserver(follow);
    observer.observe(view);
    observer.observe(inner);
    // Follow the content before its layout: to report a new size, the browser would prepare the frame a second time.
    let quiet: ReturnType<typeof setTimeout> | undefined;
    const drawn = new MutationObserver(() => {
      follow();
      observer.unobserve(inner);
      clearTimeout(quiet);
      quiet = setTimeout(() => observer.observe(inner), QUIET);
    });
    drawn.observe(inner, { attributes: true, characterData: true, childList: true, subtree: true });
    view.addEventListener('scroll', onScroll, { passive: true });
    for (const type of MOVES) view.addEventListener(type, onMove, { passive: true });
    follow();
    return () => {
      clearTimeout(quiet);
      drawn.disconnect();
      observer.disconnect();
      view.removeEventListener('scroll', onScroll);
      for (const type of MOVES) view.removeEventListener(type, onMove);
    };
  }, [scroller, content, isAtEnd]);
  return { isAtEnd, goToEnd };
}

/** Like `useFollow`, for a screen that scrolls as a whole. */
export function useFollowOnScreen(content: RefObject<HTMLElement | null>): void {
  const scroller = useRef<HTMLElement>(null);
  // Before the effect that looks for it.
  useLayoutEffect(() => {
    scroller.current = content.current?.closest('main') ?? null;
  }, [content]);
  useFollow(scroller, content);
}
