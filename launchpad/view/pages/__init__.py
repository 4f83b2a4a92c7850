"""The pages that `launchpad view` shows in a browser, by NiceGUI: a file for each."""
