/** Focusable elements, without fields, whose focus would open a phone's keyboard. */
const REACHABLE = 'a[href], button:not(:disabled), summary, [tabindex="-1"]';

/** Milliseconds for which a working button is disabled. */
const BUSY = 1000;

/**
 * Keeps the focus inside the page. A tap on `Yes` may remove the button, and the focus would fall back to the body, where a
 * keyboard starts again at the top. It goes to the nearest element in the page, and back to a button that was disabled for a
 * while. `fallback` returns the start of a screen.
 */
export function keepFocus(root: HTMLElement, fallback: () => HTMLElement | null): () => void {
  let last: HTMLElement | null = null;
  /** Ancestors of `last`, nearest first, from when it was in the page. */
  let ancestors: HTMLElement[] = [];
  let wait: ReturnType<typeof setTimeout> | undefined;

  const onFocus = ({ target }: FocusEvent) => {
    if (!(target instanceof HTMLElement) || target === root) return;
    last = target;
    ancestors = [];
    for (let above = target.parentElement; above && above !== root; above = above.parentElement) ancestors.push(above);
  };
  const onBlur = () => {
    // A tap beside everything means that no element should have the focus.
    setTimeout(() => {
      if (isLost() && last?.isConnected && !last.matches(':disabled')) last = null;
    });
  };
  const isLost = () => document.activeElement === null || document.activeElement === document.body;

  function restore(): void {
    if (!last || !isLost()) return;
    if (last.isConnected && !last.matches(':disabled')) last.focus();
    else if (!last.isConnected) goNear();
    else wait ??= setTimeout(leave, BUSY);
  }
  /** An element that is still disabled has finished its work. */
  function leave(): void {
    wait = undefined;
    if (last?.matches(':disabled') && isLost()) goNear();
  }
  function goNear(): void {
    const near = ancestors.find((element) => element.isConnected);
    // Beside a removed row are only rows about something else.
    const isScreen = !near || near.matches('main, .screen, ul, ol') || !root.contains(near);
    const target = isScreen ? null : near.querySelector<HTMLElement>(REACHABLE);
    (target ?? fallback())?.focus({ preventScroll: target === null });
  }
  const observer = new MutationObserver(() => {
    // The page may be about to move the focus itself.
    if (last && isLost()) requestAnimationFrame(restore);
  });

  root.addEventListener('focusin', onFocus);
  root.addEventListener('focusout', onBlur);
  observer.observe(root, { childList: true, subtree: true, attributes: true, attributeFilter: ['disabled'] });
  return () => {
    root.removeEventListener('focusin', onFocus);
    root.removeEventListener('focusout', onBlur);
    observer.disconnect();
    clearTimeout(wait);
  };
}
