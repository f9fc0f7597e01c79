import { useEffect } from 'preact/hooks';
import { isTouch } from '../keyboard.ts';

/** Share of the full height below which the rest of the window counts as an on-screen keyboard. */
const TYPING = 0.75;
const MAX_WIDTHS = 8;

/**
 * Fits the page into the height that an on-screen keyboard leaves, and marks the document as `typing` meanwhile, since not
 * every browser shrinks the page by itself.
 */
export function useVisibleHeight(): void {
  useEffect(() => {
    const viewport = window.visualViewport;
    const root = document.documentElement;
    if (!viewport) return;
    /** Keyed by width, since a rotated window has another height. */
    const fullHeights = new Map<number, number>();

    function follow(): void {
      if (!viewport || viewport.scale > 1.01) return;
      if (fullHeights.size > MAX_WIDTHS) fullHeights.clear();
      const fullHeight = Math.max(fullHeights.get(viewport.width) ?? 0, viewport.height);
      fullHeights.set(viewport.width, fullHeight);
      const isTyping = isTouch() && viewport.height < fullHeight * TYPING;
      root.classList.toggle('typing', isTyping);
      root.style.setProperty('--visible-height', `${viewport.height}px`);
      // iOS scrolls the page to a field that the keyboard would hide, but the terminal makes it visible itself.
      if (isTyping && viewport.offsetTop > 0) scrollTo(0, 0);
    }

    follow();
    viewport.addEventListener('resize', follow);
    viewport.addEventListener('scroll', follow);
    return () => {
      viewport.removeEventListener('resize', follow);
      viewport.removeEventListener('scroll', follow);
      root.classList.remove('typing');
      root.style.removeProperty('--visible-height');
    };
  }, []);
}
